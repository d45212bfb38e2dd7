package bootstrap

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// deployedPod returns the Pod of the rendered chart.
func deployedPod(t *testing.T) corev1.PodSpec {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "deploy", "kustomize", "stable", "rendered.yaml"))
	harness.Must(t, err)
	defer file.Close()
	for decoder := yaml.NewYAMLOrJSONDecoder(file, 4096); ; {
		var deployment appsv1.Deployment
		if err := decoder.Decode(&deployment); err != nil {
			t.Fatalf("no Deployment in %s: %v", file.Name(), err)
		}
		if deployment.Kind == "Deployment" {
			return deployment.Spec.Template.Spec
		}
	}
}

// TestDeploymentMatchesServer checks the probes and the grace period of the chart against a server.
func TestDeploymentMatchesServer(t *testing.T) {
	pod := deployedPod(t)
	container := pod.Containers[0]
	s := mustNew(t, goodConfig(), nil)
	for probe, want := range map[*corev1.Probe]string{container.ReadinessProbe: "/readyz", container.LivenessProbe: "/healthz"} {
		path := probe.HTTPGet.Path
		if path != want {
			t.Errorf("a probe requests %s, want %s", path, want)
		}
		if code, _, _ := get(t, s, path); code == http.StatusNotFound {
			t.Errorf("the server has no page %s", path)
		}
		if port := probe.HTTPGet.Port.String(); port != container.Ports[0].Name {
			t.Errorf("a probe uses port %s", port)
		}
	}
	longest := defaultStopLimit + 4*stopGrace // the bound of the elections and two more parts
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < longest {
		t.Errorf("the grace period is %v, and a stop may take %v", grace, longest)
	}
}
