package fence

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/fences"
	"incumbent.dev/incumbent/internal/testutil/harness"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	election = "istio-leader"
	account  = "pilot"
	// guarded is the ConfigMap that only the leader may write.
	guarded = "guarded"
	// lease is the lease duration of candidates. It must not expire on a busy machine.
	lease = 10 * time.Minute
)

// stage is a namespace with a fenced election.
type stage struct {
	t         testing.TB
	cluster   *cluster.Cluster
	admin     kubernetes.Interface
	namespace string
	kind      record.Kind
	// others are further accounts that may hold the lock.
	others []string
	set    fence.Set
}

// both runs a test for each kind of lock.
func both(t *testing.T, f func(t *testing.T, kind record.Kind)) {
	for _, kind := range []record.Kind{record.ConfigMap, record.Lease} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			f(t, kind)
		})
	}
}

func newStage(t testing.TB, kind record.Kind) *stage {
	t.Helper()
	return stageOn(t, cluster.Shared(t), kind)
}

func stageOn(t testing.TB, c *cluster.Cluster, kind record.Kind) *stage {
	t.Helper()
	return &stage{t: t, cluster: c, admin: c.Client(t).Kube(), namespace: c.Namespace(t), kind: kind}
}

// declaration is the election with one guarded ConfigMap.
func (s *stage) declaration() fence.Declaration {
	return fence.Declaration{
		Election: election, Namespace: s.namespace, Lock: s.kind,
		ServiceAccounts: []string{s.namespace + "/" + account}, Others: s.others,
		Coordinators: []string{"system:serviceaccount:" + s.namespace + ":coordinator"},
		Guards: []fence.Guard{{
			Resources: []string{"configmaps", "configmaps/status"}, Names: []string{guarded}, Namespaces: []string{s.namespace},
		}},
	}
}

// install puts the fence up, and takes it down with the test: all tests share an API server.
func (s *stage) install(declarations ...fence.Declaration) {
	s.t.Helper()
	s.set, _ = fences.Install(s.t, s.admin, s.namespace, declarations...)
}

// cleanup is a context for after a test.
func cleanup(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*harness.Patience)
	t.Cleanup(cancel)
	return ctx
}

// rights are the permissions of a candidate and more, so that only the fence can reject a write.
func rights() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{"", "coordination.k8s.io", "apps"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "connect"},
		Resources: []string{"configmaps", "secrets", "leases", "deployments", "deployments/scale", "deployments/status", "pods", "pods/exec", "pods/eviction", "pods/binding", "bindings", "serviceaccounts"},
	}}
}

// pod is a client with a token bound to a Pod of that name.
func (s *stage) pod(name string) kubernetes.Interface { return s.podOf(name, account).Kube() }

func (s *stage) podOf(name, account string) kube.Client {
	s.t.Helper()
	return cluster.ClientFor(s.t, s.identity(name, account))
}

func (s *stage) identity(name, account string) *rest.Config {
	s.t.Helper()
	return s.cluster.Identity(s.t, cluster.IdentityOptions{
		Namespace: s.namespace, PodName: name, ServiceAccount: account, Rules: rights(),
	})
}

// content is the record of a lock.
type content struct {
	holder      string
	transitions int
	renewed     time.Time // the default is epoch
	notes       map[string]string
}

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func (r content) stored() *locks.LeaderElectionRecord {
	if r.renewed.IsZero() {
		r.renewed = epoch
	}
	return &locks.LeaderElectionRecord{
		HolderIdentity: r.holder, LeaseDurationSeconds: 30, LeaderTransitions: r.transitions,
		AcquireTime: metav1.NewTime(epoch), RenewTime: metav1.NewTime(r.renewed),
	}
}

// json returns the record as a ConfigMap contains it.
func (r content) json() string {
	text, _ := json.Marshal(r.stored()) // cannot fail
	return string(text)
}

// request starts a request for the lock, or for all objects of its kind if the caller adds no name.
func (s *stage) request(as kubernetes.Interface, verb string) *rest.Request {
	client, resource := as.CoreV1().RESTClient(), "configmaps"
	if s.kind == record.Lease {
		client = as.CoordinationV1().RESTClient()
		resource = "leases"
	}
	return client.Verb(verb).Namespace(s.namespace).Resource(resource)
}

// object returns the lock with a record.
func (s *stage) object(r content) interface {
	runtime.Object
	metav1.Object
} {
	at := metav1.ObjectMeta{Name: election, Annotations: map[string]string{}}
	maps.Copy(at.Annotations, r.notes)
	if s.kind == record.Lease {
		return &coordinationv1.Lease{ObjectMeta: at, Spec: locks.LeaderElectionRecordToLeaseSpec(r.stored())}
	}
	at.Annotations[locks.LeaderElectionRecordAnnotationKey] = r.json()
	return &corev1.ConfigMap{ObjectMeta: at}
}

// create creates the lock. createDry tries to, and update replaces it without a version.
func (s *stage) create(as kubernetes.Interface, r content) error {
	return s.request(as, http.MethodPost).Body(s.object(r)).Do(s.t.Context()).Error()
}

func (s *stage) createDry(as kubernetes.Interface, r content, finalizers ...string) error {
	object := s.object(r)
	object.SetFinalizers(finalizers)
	return s.request(as, http.MethodPost).Param("dryRun", metav1.DryRunAll).Body(object).Do(s.t.Context()).Error()
}

func (s *stage) update(as kubernetes.Interface, r content) error {
	object := s.object(r)
	if s.kind == record.Lease { // which is not updated without a version
		present, err := s.admin.CoordinationV1().Leases(s.namespace).Get(s.t.Context(), election, metav1.GetOptions{})
		if err != nil {
			return err
		}
		object.SetResourceVersion(present.ResourceVersion)
	}
	return s.request(as, http.MethodPut).Name(election).Body(object).Do(s.t.Context()).Error()
}

// patch changes the lock object's metadata, or what else is in it.
func (s *stage) patch(as kubernetes.Interface, body string) error {
	return s.request(as, http.MethodPatch).Name(election).SetHeader("Content-Type", string(mergePatch)).Body([]byte(body)).Do(s.t.Context()).Error()
}

func (s *stage) delete(as kubernetes.Interface) error {
	return s.request(as, http.MethodDelete).Name(election).Do(s.t.Context()).Error()
}

// put makes the lock say so, as an operator.
func (s *stage) put(r content) {
	s.t.Helper()
	err := s.update(s.admin, r)
	if apierrors.IsNotFound(err) {
		err = s.create(s.admin, r)
	}
	harness.Must(s.t, err)
}

// write writes the guarded ConfigMap, dry.
func (s *stage) write(as kubernetes.Interface) error {
	_, err := as.CoreV1().ConfigMaps(s.namespace).Create(s.t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: guarded}}, metav1.CreateOptions{DryRun: dryRun})
	if apierrors.IsAlreadyExists(err) {
		return nil // admission had nothing against it
	}
	return err
}

// eventually waits until something holds.
var eventually = harness.Until

// inEffect waits until the installed fence is in effect: the holder may
// write and another pod may not.
func (s *stage) inEffect(holder, other kubernetes.Interface) {
	s.t.Helper()
	eventually(s.t, "the fence is in effect", func() bool { return fence.IsRefusal(s.write(other)) && s.write(holder) == nil })
}

// guarded has two pods with a fence in effect. The first pod leads.
func (s *stage) guarded() (holder, other kubernetes.Interface) {
	s.t.Helper()
	holder, other = s.pod("a"), s.pod("b")
	s.put(content{holder: "a", transitions: 3})
	s.install(s.declaration())
	s.inEffect(holder, other)
	return holder, other
}

// must ends the test if a request of its preparation failed.
func (s *stage) must(_ any, err error) {
	s.t.Helper()
	harness.Must(s.t, err)
}

func (s *stage) allowed(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Errorf("%s: %v", what, err)
	}
}

// refused checks that our policy refused it, and that its message names these.
func (s *stage) refused(what string, err error, words ...string) {
	s.t.Helper()
	if !fence.IsRefusal(err) {
		s.t.Errorf("%s was not refused: %v", what, err)
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			s.t.Errorf("%s: %q is missing in %v", what, word, err)
		}
	}
}
