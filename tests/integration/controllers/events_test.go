package controllers

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// eventsOn returns the messages of the Events on a lock, with their type unless it is Normal.
func eventsOn(t *testing.T, admin kube.Client, home, kind string) []string {
	t.Helper()
	all, err := admin.Kube().CoreV1().Events(home).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, e := range all.Items {
		if about := e.InvolvedObject; about.Kind == kind && about.Name == leaderelection.NamespaceController && e.Reason == "LeaderElection" {
			messages = append(messages, strings.TrimPrefix(e.Type+": ", corev1.EventTypeNormal+": ")+e.Message)
		}
	}
	slices.Sort(messages)
	return messages
}

// The permissions of the manifests suffice for Events on the lock, including the last one.
func TestServer_Events(t *testing.T) {
	for lock, kind := range map[string]string{"configmap": "ConfigMap", "lease": "Lease"} {
		t.Run(lock, func(t *testing.T) {
			c := cluster.Shared(t)
			admin, home := c.Client(t), c.Namespace(t)
			r := serve(t, pilotIdentity(t, c, home, "a"), home, "a", "stable", bundleFile(t, certificate(t)),
				func(config *bootstrap.Config) { config.Lock = lock })
			await(t, "a leads", func() bool { return r.state(t, "").Leading })
			r.end()
			want := []string{"a became leader (lock-absent)", "a stopped leading (stopped)"}
			// The end of a server does not wait for a slow API server.
			late := r.log.Count("last Events were not written in time") > 0
			if got := eventsOn(t, admin, home, kind); !slices.Equal(got, want) && !(late && slices.Equal(got, want[:min(len(got), len(want))])) || r.log.Count("forbidden") > 0 {
				t.Errorf("Events %q, want %q", got, want)
			}
		})
	}
}
