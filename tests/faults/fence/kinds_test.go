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

// customGroup has a namespaced kind, buoys, and a cluster-scoped kind, beacons.
const customGroup = "fence.incumbent.dev"

func customKind(plural, kind, scope string) string {
	return `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ` + plural + "." + customGroup + `}
spec:
  group: ` + customGroup + `
  scope: ` + scope + `
  names: {plural: ` + plural + `, singular: ` + strings.ToLower(kind) + `, kind: ` + kind + `}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
    subresources: {status: {}}
`
}

// loadKinds has the API server serve custom kinds.
func loadKinds(t testing.TB, c *cluster.Cluster, kinds ...string) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "kinds.yaml"), []byte(strings.Join(kinds, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.LoadDefinitions(t.Context(), folder); err != nil {
		t.Fatal(err)
	}
	admin := c.Client(t).Kube()
	eventually(t, "discovery lists the custom kinds", func() bool {
		list, err := admin.Discovery().ServerResourcesForGroupVersion(customGroup + "/v1")
		_, all, _ := admin.Discovery().ServerGroupsAndResources()
		return err == nil && len(list.APIResources) == 2*len(kinds) && slices.ContainsFunc(all, func(l *metav1.APIResourceList) bool {
			return l.GroupVersion == customGroup+"/v1" && len(l.APIResources) == 2*len(kinds)
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
	buoys, beacons := customKind("buoys", "Buoy", "Namespaced"), customKind("beacons", "Beacon", "Cluster")
	declare := func(g fence.Guard) fence.Declaration {
		d := s.declaration()
		g.Group = customGroup
		d.Guards = []fence.Guard{g}
		return d
	}
	here := []string{s.namespace}

	t.Log("a kind without a definition cannot be verified")
	d := declare(fence.Guard{Resources: []string{"beacons"}, Namespaces: here})
	s.install(d)
	findings, err := install.Verify(t.Context(), s.cluster.Admin(), s.set, d)
	if err != nil || install.Judge(findings, install.Judging{}) == nil || !strings.Contains(install.Judge(findings, install.Judging{}).Error(), "does not serve beacons") {
		t.Errorf("verifying: %v, %v", findings, err)
	}
	if _, err := install.Remove(t.Context(), s.admin, s.set.Name); err != nil {
		t.Fatal(err)
	}

	loadKinds(t, s.cluster, buoys, beacons)
	for _, resource := range []string{"beacons", "beacons/status", "beacons/*"} {
		set, err := fence.Render(s.namespace, declare(fence.Guard{Resources: []string{"buoys", resource}, Namespaces: here}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = install.Apply(t.Context(), s.admin, set)
		if err == nil || !strings.Contains(err.Error(), resource+" by namespace") || strings.Contains(err.Error(), "buoys") {
			t.Errorf("guarding %s by namespaces: %v", resource, err)
		}
	}
	if got := s.installed(); len(got) > 0 {
		t.Errorf("installed all the same: %v", got)
	}

	s.install(declare(fence.Guard{Resources: []string{"beacons", "beacons/*"}, Names: []string{guarded}}), s.buoys())
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

// buoys guards what lies in a namespace by it.
func (s *stage) buoys() fence.Declaration {
	d := s.declaration()
	d.Election += "-buoys"
	d.Guards = []fence.Guard{{Group: customGroup, Resources: []string{"buoys"}, Namespaces: []string{s.namespace}}}
	return d
}
