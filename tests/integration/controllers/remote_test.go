package controllers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/access"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// sameNamespace creates a namespace of this name.
func sameNamespace(t *testing.T, admin kube.Client, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := admin.Kube().CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// remoteKubeconfig returns the kubeconfig file of a server of another cluster. Its account is in a separate namespace,
// because the namespace of the control plane may be created later.
func remoteKubeconfig(t *testing.T, c *cluster.Cluster, home string) string {
	t.Helper()
	there := bootstrap.Config{Config: leaderelection.Config{Namespace: home}}.AtRemote()
	shared, perRevision := bootstrap.Elections(there)
	if len(shared) != 1 || shared[0] != leaderelection.NamespaceController || len(perRevision) != 0 {
		t.Errorf("elections in a remote cluster: %q and %q", shared, perRevision)
	}
	rules := access.Of(t, "remote controllers", home, "stable")
	file := filepath.Join(t.TempDir(), "remote")
	visitor := c.Identity(t, cluster.IdentityOptions{
		Namespace: c.Namespace(t), PodName: "visitor", ClusterRules: append(rules.Namespace, rules.Cluster...),
	})
	harness.Must(t, cluster.WriteKubeconfig(file, visitor, ""))
	return file
}

// record returns the record of the ConfigMap lock.
func record(t *testing.T, admin kube.Client, home string) (r locks.LeaderElectionRecord) {
	t.Helper()
	lock, err := admin.Kube().CoreV1().ConfigMaps(home).Get(t.Context(), leaderelection.NamespaceController, metav1.GetOptions{})
	if err != nil {
		return r
	}
	_ = json.Unmarshal([]byte(lock.Annotations[locks.LeaderElectionRecordAnnotationKey]), &r) // an unreadable record has no holder
	return r
}

func TestRemoteCluster(t *testing.T) {
	west := cluster.Shared(t)
	east := cluster.Own(t, cluster.Options{WithoutControllers: true})
	t.Run("local outranks remote", func(t *testing.T) { localOutranksRemote(t, west, east) })
	t.Run("remote starts late", func(t *testing.T) { remoteStartsLate(t, west, east) })
}

// A server of cluster west also takes part in an election of cluster east, with a remote key. A local candidate of
// east outranks it. Failures of east do not affect west.
func localOutranksRemote(t *testing.T, west, east *cluster.Cluster) {
	home := west.Namespace(t)
	inWest, inEast := west.Client(t), east.Client(t)
	sameNamespace(t, inEast, home)
	east.SetRevision(t, tagging.DefaultTagWebhook(""), "stable")
	file := remoteKubeconfig(t, east, home)
	ofWest, ofEast := certificate(t), certificate(t)
	remote := serve(t, pilotIdentity(t, west, home, "pod-of-west"), home, "pod-of-west", "stable", bundleFile(t, ofWest), func(config *bootstrap.Config) {
		config.RemoteKubeconfig, config.Fence = file, true
	})
	leads := func(r *replica, where, admin string, client kube.Client, holder, key string) {
		t.Helper()
		await(t, fmt.Sprintf("%s leads in %s", holder, admin), func() bool { return state(t, r, where).Process.Leading })
		if now := record(t, client, home); now.HolderIdentity != holder || now.HolderKey != key {
			t.Errorf("the record in %s is %+v", admin, now)
		}
	}
	leads(remote, "", "west", inWest, "pod-of-west", "stable")
	leads(remote, "remote", "east", inEast, "pod-of-west", "^stable")
	carries(t, inWest, home, ofWest)
	carries(t, inEast, home, ofWest)
	sample := "leader_election_master_status{%sname=%q}"
	for _, label := range []string{"", `cluster="remote",`} {
		await(t, "leading is counted with "+label, func() bool {
			return remote.Metric(t, fmt.Sprintf(sample, label, leaderelection.NamespaceController)) == "1"
		})
	}

	// A local candidate of east outranks the remote leader.
	local := serve(t, pilotIdentity(t, east, home, "pod-of-east"), home, "pod-of-east", "stable", bundleFile(t, ofEast), nil)
	leads(local, "", "east", inEast, "pod-of-east", "stable")
	await(t, "the nomination is counted", func() bool { return local.Metric(t, terms("began", "nominated")) == "1" })
	await(t, "Event in east", func() bool {
		events, err := inEast.Kube().CoreV1().Events(home).List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(events.Items, func(e corev1.Event) bool {
			return e.Message == "pod-of-east requested a handover from pod-of-west (local-over-remote)"
		})
	})
	carries(t, inEast, home, ofEast)
	leads(remote, "", "west", inWest, "pod-of-west", "stable")
	if spread(t, inWest, home) != ofWest {
		t.Error("namespace in west has the bundle of east")
	}
	// After its end, the remote candidate leads again.
	local.End()
	leads(remote, "remote", "east", inEast, "pod-of-west", "^stable")
	carries(t, inEast, home, ofWest)

	if n := remote.Log.Count("forbidden"); n > 0 {
		t.Errorf("%d requests forbidden", n)
	}

	// A failure of east does not affect west. After its restart, east rejects requests until it has read its roles.
	bringBack := stopAPIServer(t, east)
	fresh := west.Namespace(t)
	carries(t, inWest, fresh, ofWest)
	if code, text := page(t, remote, "/readyz"); code != http.StatusOK {
		t.Errorf("not ready without east: %s", text)
	}
	bringBack()
	sameNamespace(t, inEast, fresh)
	carries(t, inEast, fresh, ofWest)
	remote.End()
	for where, admin := range map[string]kube.Client{"west": inWest, "east": inEast} {
		if now := record(t, admin, home); now.HolderIdentity != "" {
			t.Errorf("the lock in %s has the holder %s", where, now.HolderIdentity)
		}
	}
}

// The remote cluster is down at the start, and the namespace of its lock is created later.
func remoteStartsLate(t *testing.T, west, east *cluster.Cluster) {
	home := west.Namespace(t)
	file := remoteKubeconfig(t, east, home)
	inWest, inEast := west.Client(t), east.Client(t)
	bringBack := stopAPIServer(t, east)
	content := certificate(t)
	r := serve(t, pilotIdentity(t, west, home, "a"), home, "a", "stable", bundleFile(t, content), func(config *bootstrap.Config) {
		config.RemoteKubeconfig = file
	})
	carries(t, inWest, home, content)
	await(t, "readiness", func() bool { code, _ := page(t, r, "/readyz"); return code == http.StatusOK })
	await(t, "remote failure logged", func() bool { return r.Log.Count("WARN", "cluster=remote") > 0 })
	bringBack()
	await(t, "missing namespace logged", func() bool { return r.Log.Count("cluster=remote", "not found") > 0 })
	sameNamespace(t, inEast, home)
	await(t, "leads in the remote cluster", func() bool { return state(t, r, "remote").Process.Leading })
	carries(t, inEast, home, content)
	if state(t, r, "").Holder != "a" {
		t.Error("it does not lead in its own cluster")
	}
	r.End()
}
