package ctl

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// A user makes durations on a lock too long, and other clients write the lock later. explain names the user, and its command, pasted
// into a shell, heals the lock.
func TestExplain_HealsDurations(t *testing.T) {
	e := newEnvironment(t)
	patch := func(lock, manager, body string) {
		t.Helper()
		options := metav1.PatchOptions{FieldManager: manager}
		if lock == "configmap" {
			e.must(e.kube.CoreV1().ConfigMaps(e.namespace).Patch(t.Context(), lock, types.MergePatchType, []byte(body), options))
			return
		}
		e.must(e.kube.CoordinationV1().Leases(e.namespace).Patch(t.Context(), lock, types.MergePatchType, []byte(body), options))
	}
	annotation := func(name, value string) string {
		body, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{name: value}}})
		e.must(nil, err)
		return string(body)
	}
	const holder = `it's $(pilot) \u202e"1`
	usual := strings.Replace(strings.Replace(record, "istiod-stable-1", `it's $(pilot) \\u202e\"1`, 1), ":600,", ":30,", 1)
	e.istiod("configmap", usual)
	e.clientGo("lease", holder)
	patch("lease", "operator", `{"spec":{"leaseDurationSeconds":30}}`)
	patch("configmap", "mallory", annotation(recordKey, strings.Replace(usual, ":30,", ":3600,", 1)))
	patch("lease", "mallory", `{"spec":{"leaseDurationSeconds":3600}}`)
	for _, lock := range []string{"configmap", "lease"} {
		hold, err := json.Marshal(map[string]any{"holder": holder, "transitions": map[string]int{"configmap": 3, "lease": 1}[lock], "seconds": 99999999, "reason": "pause"})
		e.must(nil, err)
		patch(lock, "eve", annotation("incumbent.dev/hold", string(hold)))
	}
	next := time.Now().Truncate(time.Second).Add(time.Second)
	harness.Until(t, "managedFields have a later time", func() bool { return time.Now().After(next) })
	patch("configmap", "other", `{"metadata":{"labels":{"a":"b"}}}`)
	patch("lease", "other", `{"spec":{"renewTime":"2026-01-02T03:04:06.000000Z"}}`)

	obstacles := func(lock string) (all []inspect.Obstacle) {
		t.Helper()
		var found struct{ Items []inspect.Election }
		r := e.raw("", false, "explain", lock, "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &found); err != nil || len(found.Items) != 1 {
			t.Fatalf("%v: %+v", err, r)
		}
		for _, o := range found.Items[0].Obstacles {
			if strings.Contains(o.Effect, "Its last writer") {
				all = append(all, o)
			}
		}
		return all
	}
	for _, lock := range []string{"configmap", "lease"} {
		for _, writer := range []string{"eve", "mallory"} {
			found := obstacles(lock)
			if len(found) == 0 || !strings.Contains(found[0].Effect, "Its last writer is "+writer+",") {
				t.Fatalf("%s: %+v, want a duration of %s", lock, found, writer)
			}
			e.paste(found[0].Remove)
		}
		if found := obstacles(lock); len(found) > 0 {
			t.Errorf("%s: %+v", lock, found)
		}
	}
	cm, err := e.kube.CoreV1().ConfigMaps(e.namespace).Get(t.Context(), "configmap", metav1.GetOptions{})
	if err != nil || cm.Annotations[recordKey] != usual {
		t.Errorf("record %s, %v, want %s", cm.Annotations[recordKey], err, usual)
	}
}

// paste runs a printed command in a shell.
func (e *environment) paste(command string) {
	e.t.Helper()
	folder := e.t.TempDir()
	e.must(nil, os.Symlink(e.cluster.Kubectl(), filepath.Join(folder, "kubectl")))
	shell := exec.CommandContext(e.t.Context(), "sh", "-c", command)
	shell.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"), "KUBECONFIG="+e.cluster.Kubeconfig(), "HOME="+folder)
	if out, err := shell.CombinedOutput(); err != nil {
		e.t.Errorf("%s: %v: %s", command, err, out)
	}
}
