package fence

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/tests/cluster"
)

// customGroup has the cluster-scoped kind beacons.
const customGroup = "fence.incumbent.dev"

const beacons = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: beacons.` + customGroup + `}
spec:
  group: ` + customGroup + `
  scope: Cluster
  names: {plural: beacons, singular: beacon, kind: Beacon}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}}
`

// loadKind has the API server serve a cluster-scoped custom kind.
func loadKind(t testing.TB, c *cluster.Cluster) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "kind.yaml"), []byte(beacons), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.LoadDefinitions(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	eventually(t, "discovery lists the custom kind", func() bool {
		_, all, _ := c.Client(t).Kube().Discovery().ServerGroupsAndResources()
		return slices.ContainsFunc(all, func(l *metav1.APIResourceList) bool {
			return l.GroupVersion == customGroup+"/v1" && len(l.APIResources) == 2
		})
	})
}

// as returns a client that impersonates a pod of an account, as verify does. It has all permissions of RBAC:
// only the fence rejects its requests.
func (s *stage) as(account, pod string) *rest.Config {
	config := rest.CopyConfig(s.cluster.Admin())
	namespace, name, _ := strings.Cut(account, "/")
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + namespace + ":" + name, Groups: []string{"system:masters"},
		Extra: map[string][]string{fence.PodClaim: {pod}},
	}
	return config
}

func TestFence_ClusterScopedCustomKinds(t *testing.T) {
	t.Parallel()
	s := stageOn(t, ownCluster(t, cluster.Options{}), fence.Lease)
	s.pod("a")
	s.put(record{holder: "a", transitions: 3})
	loadKind(t, s.cluster)
	d := s.declaration()
	d.Guards = []fence.Guard{{Group: customGroup, Resources: []string{"beacons"}, Namespaces: []string{s.namespace}}}
	set, err := fence.Render(s.namespace, d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := install.Apply(t.Context(), s.admin, set); err == nil || !strings.Contains(err.Error(), "beacons by namespace") {
		t.Errorf("guarding a cluster-scoped kind by namespaces: %v", err)
	}
	d.Guards = []fence.Guard{{Group: customGroup, Resources: []string{"beacons", "beacons/*"}, Names: []string{guarded}}}
	s.install(d)
	leader, other := cluster.ClientFor(t, s.as(s.namespace+"/"+account, "a")).Dynamic(), cluster.ClientFor(t, s.as(s.namespace+"/"+account, "b")).Dynamic()
	kind := schema.GroupVersionResource{Group: customGroup, Version: "v1", Resource: "beacons"}
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": customGroup + "/v1", "kind": "Beacon", "metadata": map[string]any{"name": guarded}}}
	_, err = other.Resource(kind).Create(t.Context(), object, metav1.CreateOptions{})
	s.refused("making it", err, "pod b is not the leader")
	_, err = leader.Resource(kind).Create(t.Context(), object, metav1.CreateOptions{})
	s.allowed("making it", err)
	for _, sub := range [][]string{nil, {"status"}} {
		_, err = other.Resource(kind).Patch(t.Context(), guarded, mergePatch, []byte(`{"status":{"a":"b"}}`), metav1.PatchOptions{}, sub...)
		s.refused("a patch", err, "pod b is not the leader")
		_, err = leader.Resource(kind).Patch(t.Context(), guarded, mergePatch, []byte(`{"status":{"a":"b"}}`), metav1.PatchOptions{}, sub...)
		s.allowed("a patch", err)
	}
	s.refused("deleting it", other.Resource(kind).Delete(t.Context(), guarded, metav1.DeleteOptions{}))
	s.refused("deleting all", other.Resource(kind).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}), "delete them by name")
	s.allowed("deleting it", leader.Resource(kind).Delete(t.Context(), guarded, metav1.DeleteOptions{}))
}
