package bootstrap

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// mayDo lists everything that the rules allow, as "verb group/resource namespace name". "home" is the namespace of
// the control plane, "other" is any namespace, "-" is none.
var mayDo = map[string]bool{
	// "mine" is a lock of this revision, "theirs" a lock of another revision, "predecessor" the shared lock before them.
	"get configmaps home predecessor": true, "watch configmaps home predecessor": true, "update configmaps home predecessor": true,
	"get coordination.k8s.io/leases home mine": true, "watch coordination.k8s.io/leases home new": true, "update coordination.k8s.io/leases home mine": true,
	// The member Lease of each Pod, whose name is not known in advance. The fence restricts these rights to it.
	"list coordination.k8s.io/leases home new":  true,
	"patch coordination.k8s.io/leases home new": true, "delete coordination.k8s.io/leases home new": true,
	"create configmaps home new": true, "create coordination.k8s.io/leases home new": true,
	"get configmaps home lock": true, "watch configmaps home lock": true, "update configmaps home lock": true,
	"get coordination.k8s.io/leases home lock": true, "watch coordination.k8s.io/leases home lock": true, "update coordination.k8s.io/leases home lock": true,
	"list events home new": true, "create events home new": true, "patch events home new": true, "patch events home lock": true, "patch events home bundle": true, "patch events home webhook": true,
	"list pods home new": true, "watch pods home new": true,
	"list nodes - new": true, "watch nodes - new": true, "create events - new": true, "patch events - new": true,
	"list networking.k8s.io/ingresses - new": true, "watch networking.k8s.io/ingresses - new": true,
	"list networking.k8s.io/ingressclasses - new": true, "watch networking.k8s.io/ingressclasses - new": true,
	"patch networking.k8s.io/ingresses/status - new": true,
	"list namespaces - new":                          true, "watch namespaces - new": true,
	"create configmaps other new": true, "create configmaps - new": true,
	"list configmaps - new": true, "watch configmaps - new": true, "patch configmaps - bundle": true,
	"patch configmaps home bundle": true, "patch configmaps other bundle": true,
	"get admissionregistration.k8s.io/mutatingwebhookconfigurations - webhook":       true,
	"list admissionregistration.k8s.io/mutatingwebhookconfigurations - new":          true,
	"watch admissionregistration.k8s.io/mutatingwebhookconfigurations - new":         true,
	"list admissionregistration.k8s.io/validatingwebhookconfigurations - validator":  true,
	"watch admissionregistration.k8s.io/validatingwebhookconfigurations - validator": true,
	"list gateway.networking.k8s.io/gateways - new":                                  true, "watch gateway.networking.k8s.io/gateways - new": true,
	"get gateway.networking.k8s.io/gateways - new": true, "patch gateway.networking.k8s.io/gateways - new": true, "patch gateway.networking.k8s.io/gateways/status - new": true,
	"list gateway.networking.k8s.io/httproutes - new": true, "watch gateway.networking.k8s.io/httproutes - new": true,
	"patch gateway.networking.k8s.io/httproutes/status - new": true,
	"list gateway.networking.k8s.io/udproutes - new":          true, "watch gateway.networking.k8s.io/udproutes - new": true,
	"patch gateway.networking.k8s.io/udproutes/status - new": true,
	"list gateway.networking.k8s.io/gatewayclasses - new":    true, "watch gateway.networking.k8s.io/gatewayclasses - new": true,
	"create gateway.networking.k8s.io/gatewayclasses - new": true, "patch gateway.networking.k8s.io/gatewayclasses/status - new": true,
	"list gateway.networking.k8s.io/referencegrants - new": true, "watch gateway.networking.k8s.io/referencegrants - new": true,
	"list secrets - new": true, "watch secrets - new": true,
	"get services - new": true, "list services - new": true, "watch services - new": true, "create services - new": true, "patch services - new": true,
	"get serviceaccounts - new": true, "list serviceaccounts - new": true, "watch serviceaccounts - new": true,
	"create serviceaccounts - new": true, "patch serviceaccounts - new": true,
	"get apps/deployments - new": true, "list apps/deployments - new": true, "watch apps/deployments - new": true,
	"create apps/deployments - new": true, "patch apps/deployments - new": true,
	"delete services - new": true, "delete serviceaccounts - new": true, "delete apps/deployments - new": true,
	"get autoscaling/horizontalpodautoscalers - new": true, "list autoscaling/horizontalpodautoscalers - new": true, "watch autoscaling/horizontalpodautoscalers - new": true,
	"create autoscaling/horizontalpodautoscalers - new": true, "patch autoscaling/horizontalpodautoscalers - new": true, "delete autoscaling/horizontalpodautoscalers - new": true,
	"get policy/poddisruptionbudgets - new": true, "list policy/poddisruptionbudgets - new": true, "watch policy/poddisruptionbudgets - new": true,
	"create policy/poddisruptionbudgets - new": true, "patch policy/poddisruptionbudgets - new": true, "delete policy/poddisruptionbudgets - new": true,
	"list admissionregistration.k8s.io/validatingadmissionpolicies - new":        true,
	"watch admissionregistration.k8s.io/validatingadmissionpolicies - new":       true,
	"list admissionregistration.k8s.io/validatingadmissionpolicybindings - new":  true,
	"watch admissionregistration.k8s.io/validatingadmissionpolicybindings - new": true,
}

var (
	verbs     = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate"}
	resources = []string{
		"configmaps", "coordination.k8s.io/leases", "events", "namespaces", "secrets", "pods", "serviceaccounts", "users",
		"admissionregistration.k8s.io/mutatingwebhookconfigurations", "admissionregistration.k8s.io/validatingadmissionpolicies",
		"admissionregistration.k8s.io/validatingadmissionpolicybindings",
		"rbac.authorization.k8s.io/roles", "rbac.authorization.k8s.io/clusterroles", "apps/deployments", "services", "nodes", "networking.k8s.io/ingresses", "networking.k8s.io/ingressclasses", "networking.k8s.io/ingresses/status", "*/*",
		"admissionregistration.k8s.io/validatingwebhookconfigurations", "serviceaccounts/token", "services/status", "apps/deployments/status",
		"gateway.networking.k8s.io/gateways", "gateway.networking.k8s.io/gateways/status", "gateway.networking.k8s.io/gatewayclasses",
		"gateway.networking.k8s.io/gatewayclasses/status", "gateway.networking.k8s.io/httproutes", "gateway.networking.k8s.io/httproutes/status",
		"gateway.networking.k8s.io/udproutes", "gateway.networking.k8s.io/udproutes/status",
		"gateway.networking.k8s.io/referencegrants", "autoscaling/horizontalpodautoscalers", "policy/poddisruptionbudgets",
	}
)

// allowed reports whether an entry of mayDo implies an access.
func allowed(verb, resource, place, name string) bool {
	key := strings.Join([]string{verb, resource, place, name}, " ")
	if mayDo[key] {
		return true
	}
	// A right without a name includes all names.
	if mayDo[strings.Join([]string{verb, resource, place, "new"}, " ")] {
		return true
	}
	// A right in the cluster includes all namespaces.
	for _, n := range []string{name, "new"} {
		if mayDo[strings.Join([]string{verb, resource, "-", n}, " ")] {
			return true
		}
	}
	return false
}

// TestRights checks every combination with a real API server. The rules allow mayDo and nothing else.
func TestRights(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	for _, revision := range []string{"stable", "canary"} {
		rights := Rights(Config{Revision: revision})
		e.cluster.Identity(t, cluster.IdentityOptions{
			Namespace: e.home, PodName: revision, ServiceAccount: "plane-" + revision,
			Rules: manifests.NamespaceRules(rights), ClusterRules: manifests.ClusterRules(rights),
		})
	}
	locks, within := Elections(Config{})
	names := map[string]string{
		"lock": locks[0], "bundle": namespace.ConfigMapName, "webhook": revisions.DefaultTagWebhook(""), "validator": revisions.DefaultValidator, "new": "",
		"mine": within[1] + "-stable", "theirs": within[1] + "-canary", "predecessor": within[0],
	}
	places := map[string]string{"home": e.home, "other": "default", "-": ""}
	may := func(account, verb, resource, place, name string) bool {
		group, kind, grouped := strings.Cut(resource, "/")
		if !grouped {
			group, kind = "", resource
		}
		kind, subresource, _ := strings.Cut(kind, "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + e.home + ":" + account, Groups: []string{"system:serviceaccounts", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: kind, Subresource: subresource, Namespace: places[place], Name: names[name]},
		}}
		answer, err := e.admin.Kube().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
			return false
		}
		return answer.Status.Allowed
	}
	await(t, "the roles are in effect", func() bool {
		return may("plane-stable", "create", "events", "home", "new") && may("plane-stable", "list", "namespaces", "-", "new")
	})
	var asking sync.WaitGroup
	for _, verb := range verbs {
		asking.Go(func() {
			for _, resource := range resources {
				for place := range places {
					for name := range names {
						if got, want := may("plane-stable", verb, resource, place, name), allowed(verb, resource, place, name); got != want {
							t.Errorf("%s %s in %s, %s: %v, want %v", verb, resource, place, name, got, want)
						}
					}
				}
			}
		})
	}
	asking.Wait()
	await(t, "the roles of the other revision are in effect", func() bool { return may("plane-canary", "update", "coordination.k8s.io/leases", "home", "theirs") })
	if may("plane-canary", "update", "coordination.k8s.io/leases", "home", "mine") || may("plane-canary", "update", "configmaps", "home", "mine") {
		t.Error("another revision may write a lock of this revision")
	}
	for _, other := range []string{"default", "plane"} {
		if may(other, "get", "configmaps", "home", "lock") || may(other, "list", "namespaces", "-", "new") {
			t.Errorf("the service account %s has rights", other)
		}
	}
}

// deployedPod returns the Pod of the rendered chart.
func deployedPod(t *testing.T) corev1.PodSpec {
	t.Helper()
	file, err := os.Open(filepath.Join("..", "..", "deploy", "kustomize", "stable", "rendered.yaml"))
	if err != nil {
		t.Fatal(err)
	}
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
	t.Parallel()
	e := newEnvironment(t)
	pod := deployedPod(t)
	container := pod.Containers[0]
	r := start(t, e.config(t, "a"), newController().rows())
	for probe, want := range map[*corev1.Probe]string{container.ReadinessProbe: "/readyz", container.LivenessProbe: "/healthz"} {
		if path := probe.HTTPGet.Path; path != want {
			t.Errorf("a probe requests %s, want %s", path, want)
		}
		await(t, "the page of the probe exists", func() bool { code, _ := r.page(t, probe.HTTPGet.Path); return code == http.StatusOK })
		if port := probe.HTTPGet.Port.String(); port != container.Ports[0].Name {
			t.Errorf("a probe uses port %s", port)
		}
	}
	longest := defaultShutdownTimeout + 4*stopGrace // the bound of the elections and two more parts
	if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; grace < longest {
		t.Errorf("the grace period is %v, and a stop may take %v", grace, longest)
	}
}
