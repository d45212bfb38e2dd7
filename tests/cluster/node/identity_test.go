package node_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// ask returns the lines of a page of a replica.
func (w *world) ask(pod corev1.Pod, page string) []string {
	w.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + pod.Status.PodIP + ":8080" + page)
	harness.Must(w, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	harness.Must(w, err)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func field(path string) *corev1.EnvVarSource {
	return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
}

func TestProcessEnvironmentAndToken(t *testing.T) {
	w := newWorld(t, func(o *node.Options) { o.TokenRefresh = 500 * time.Millisecond })
	spec := podSpec("--name=$(NAME)", "$(UNKNOWN)", "$$(NAME)")
	spec.Containers[0].Env = append(spec.Containers[0].Env,
		corev1.EnvVar{Name: "NAME", ValueFrom: field("metadata.name")},
		corev1.EnvVar{Name: "PLACE", ValueFrom: field("metadata.namespace")},
		corev1.EnvVar{Name: "ADDRESS", ValueFrom: field("status.podIP")},
		corev1.EnvVar{Name: "UID", ValueFrom: field("metadata.uid")},
		corev1.EnvVar{Name: "BOTH", Value: "$(PLACE)/$(NAME)"},
		corev1.EnvVar{Name: "POD_NAMESPACE", Value: "mine"},
	)
	t.Setenv("OF_THE_NODE", "only")
	w.create("one", spec)
	pod := w.ready(1)[0]

	environment := w.ask(pod, "/env")
	names := []string{
		"PATH", "HOME", "TMPDIR", "KUBECONFIG", "POD_NAME", "POD_NAMESPACE", "POD_IP", "NAME", "PLACE", "ADDRESS", "UID", "BOTH", roleVariable,
	}
	for _, entry := range environment {
		if name, _, _ := strings.Cut(entry, "="); !slices.Contains(names, name) {
			t.Errorf("unexpected variable %s", entry)
		}
	}
	for _, wanted := range []string{
		"NAME=one", "PLACE=" + w.namespace, "ADDRESS=" + pod.Status.PodIP, "UID=" + string(pod.UID),
		"BOTH=" + w.namespace + "/one", "POD_NAME=one", "POD_NAMESPACE=mine", "POD_IP=" + pod.Status.PodIP,
	} {
		if !slices.Contains(environment, wanted) {
			t.Errorf("missing %s in\n%s", wanted, strings.Join(environment, "\n"))
		}
	}
	if args := w.ask(pod, "/args"); !slices.Equal(args, []string{"--name=one", "$(UNKNOWN)", "$(NAME)"}) {
		t.Errorf("arguments %q", args)
	}

	here, err := w.node.Pod(w.namespace, "one")
	harness.Must(t, err)
	folder := filepath.Dir(here.Log)
	whoami := exec.Command(w.cluster.Kubectl(), "--kubeconfig", filepath.Join(folder, "kubeconfig"), "auth", "whoami", "-o", "json")
	said, err := whoami.CombinedOutput()
	for _, want := range []string{`"system:serviceaccount:` + w.namespace + `:default"`, `"one"`, `"` + string(pod.UID) + `"`} {
		if !strings.Contains(string(said), want) {
			t.Errorf("missing %s in the identity of the Pod (%v):\n%s", want, err, said)
		}
	}
	w.tokenIsReplaced(filepath.Join(folder, "token"))
}

func (w *world) tokenIsReplaced(file string) {
	w.Helper()
	before, err := os.ReadFile(file)
	harness.Must(w, err)
	w.until("the token is replaced", func(context.Context) (bool, error) {
		now, err := os.ReadFile(file)
		return string(now) != string(before), err
	})
}
