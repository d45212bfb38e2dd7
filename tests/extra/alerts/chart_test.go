package alerts

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/helm"
)

// root is the repository, and chart the path of the chart pilot.
var (
	root  = filepath.Join("..", "..", "..")
	chart = filepath.Join(root, "deploy", "charts", "pilot")
)

// program builds Helm in a cache folder. An up-to-date program is not linked again.
var program = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join(root, ".cache", "alerts", "helm"))
	if err != nil {
		return "", err
	}
	return path, example.Build(context.Background(), filepath.Join(root, "tools", "helm"), ".", path, "-trimpath", "-buildvcs=false", "-ldflags=-w")
})

// everything enables all monitoring objects.
const everything = "monitoring.rules.enabled=true,monitoring.serviceMonitor.enabled=true,monitoring.dashboard.enabled=true"

// monitoring are the objects for the operator and for Grafana, and the Services and Deployments that they refer to.
type monitoring struct {
	rules       []monitoringv1.PrometheusRule
	monitors    []monitoringv1.ServiceMonitor
	dashboard   []corev1.ConfigMap
	services    []corev1.Service
	deployments []appsv1.Deployment
}

// texts caches rendered charts by their values.
var texts sync.Map

// rendered returns the monitoring objects of the release stable. An unknown field is an error.
func rendered(t *testing.T, set string) (all monitoring) {
	t.Helper()
	once, _ := texts.LoadOrStore(set, sync.OnceValues(func() (string, error) {
		path, err := program()
		if err != nil {
			return "", err
		}
		h := helm.Helm{Program: path, Namespace: "istio-system", Home: t.TempDir()}
		return h.Run(t.Context(), "template", "stable", chart, "--set", "image=pilot,caBundle.file=/ca.pem", "--set", set)
	}))
	text, err := once.(func() (string, error))()
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split("\n"+text, "\n---\n") {
		switch {
		case strings.Contains(document, "\nkind: PrometheusRule\n"):
			all.rules = append(all.rules, strictly[monitoringv1.PrometheusRule](t, document))
		case strings.Contains(document, "\nkind: ServiceMonitor\n"):
			all.monitors = append(all.monitors, strictly[monitoringv1.ServiceMonitor](t, document))
		case strings.Contains(document, "\n  incumbent.json:"):
			all.dashboard = append(all.dashboard, strictly[corev1.ConfigMap](t, document))
		case strings.Contains(document, "\nkind: Service\n"):
			all.services = append(all.services, strictly[corev1.Service](t, document))
		case strings.Contains(document, "\nkind: Deployment\n"):
			all.deployments = append(all.deployments, strictly[appsv1.Deployment](t, document))
		}
	}
	return all
}

func strictly[T any](t *testing.T, document string) (object T) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(document), &object); err != nil {
		t.Errorf("%v in\n%s", err, document)
	}
	return object
}

// byLeases enables the alerts on the metrics of kube-state-metrics, and Leases as locks.
const byLeases = "monitoring.rules.leases=true,elections.lock=lease"

// alerts returns the rules of a release.
func alerts(t *testing.T, set string) []monitoringv1.Rule {
	t.Helper()
	r := rendered(t, set).rules
	if len(r) != 1 || len(r[0].Spec.Groups) != 1 || len(r[0].Spec.Groups[0].Rules) == 0 {
		t.Fatalf("the rules are %+v", r)
	}
	return r[0].Spec.Groups[0].Rules
}
