package locks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/locktest"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

const lockName = "istio-leader"

// rights are the permissions that a candidate needs: create objects, and get, update and watch its lock.
func rights(kind locktest.Kind) []rbacv1.PolicyRule {
	groups := []string{""}
	if kind == locktest.Lease {
		groups = []string{coordinationv1.GroupName}
	}
	resources := []string{string(kind)}
	return []rbacv1.PolicyRule{
		{APIGroups: groups, Resources: resources, Verbs: []string{"create"}},
		{APIGroups: groups, Resources: resources, Verbs: []string{"get", "update", "watch"}, ResourceNames: []string{lockName}},
	}
}

func clientset(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	set, err := kubernetes.NewForConfig(config)
	harness.Must(t, err)
	return set
}

// scene is one lock object in its own namespace.
type scene struct {
	kind      locktest.Kind
	shared    *k8sresourcelock.Shared // nil: each lock has a watch of its own
	namespace string
	admin     kubernetes.Interface
	candidate kubernetes.Interface
}

var started sync.Once

// forgetful restarts the API server once. Its watch cache then starts with the state that it
// finds, so that version 1 has expired.
func forgetful(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	started.Do(func() {
		harness.Must(t, errors.Join(c.APIServer().Stop(), c.APIServer().Start(t.Context())))
	})
}

// newScene returns a scene for a candidate with the least permissions and a token that is bound to its Pod. change
// may adjust the connection.
func newScene(t *testing.T, kind locktest.Kind, change func(*rest.Config), more ...rbacv1.PolicyRule) scene {
	t.Helper()
	c := cluster.Shared(t)
	forgetful(t, c)
	namespace := c.Namespace(t)
	config := c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "pilot", Rules: append(rights(kind), more...)})
	change(config)
	s := scene{kind: kind, namespace: namespace, admin: clientset(t, c.Admin()), candidate: clientset(t, config)}
	// The API server's authorizer receives new permissions from a watch.
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := s.lock("pilot", "").Read(ctx)
		if apierrors.IsForbidden(err) {
			return false, nil
		}
		return true, err
	})
	harness.Must(t, err)
	return s
}

func (s scene) lock(identity, key string) k8sresourcelock.Lock {
	lock := lockOn(s.candidate, s.kind, s.namespace, lockName, identity, key)
	if lease, ok := lock.(*k8sresourcelock.LeaseLock); ok {
		lease.Shared = s.shared
	}
	return lock
}

func lockOn(set kubernetes.Interface, kind locktest.Kind, namespace, name, identity, key string) k8sresourcelock.Lock {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	config := k8sresourcelock.ResourceLockConfig{Identity: identity, Key: key}
	if kind == locktest.Lease {
		return &k8sresourcelock.LeaseLock{LeaseMeta: meta, Client: set.CoordinationV1(), LockConfig: config}
	}
	return &k8sresourcelock.ConfigMapLock{ConfigMapMeta: meta, Client: set.CoreV1(), LockConfig: config}
}

// harness is the scene's lock object, absent, for the conformance suite.
func (s scene) harness(t *testing.T) locktest.Harness {
	t.Helper()
	s.remove(t)
	s.awaitAbsent(t)
	owner, err := s.admin.CoreV1().ConfigMaps(s.namespace).Get(t.Context(), "owner", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		owner, err = s.admin.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	}
	harness.Must(t, err)
	neighbours := 0
	return locktest.Harness{
		Lock:   func(identity, key string) k8sresourcelock.Lock { return s.lock(identity, key) },
		Mutate: func(change func(apiserver.Object)) { s.mutate(t, lockName, change) },
		Delete: func() { s.remove(t) },
		Owner:  metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
		WriteOther: func() {
			neighbours++
			s.mutate(t, "other-object", func(obj apiserver.Object) {
				obj.SetLabels(map[string]string{"n": fmt.Sprint(neighbours)})
			})
		},
	}
}

// mutate changes an object with an administrator's rights, or makes it.
func (s scene) mutate(t *testing.T, name string, change func(apiserver.Object)) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also called from cleanups
	meta := metav1.ObjectMeta{Name: name}
	var err error
	if s.kind == locktest.Lease {
		err = cluster.Edit(ctx, s.admin.CoordinationV1().Leases(s.namespace), &coordinationv1.Lease{ObjectMeta: meta},
			func(lease *coordinationv1.Lease) { change(lease) })
	} else {
		err = cluster.Edit(ctx, s.admin.CoreV1().ConfigMaps(s.namespace), &corev1.ConfigMap{ObjectMeta: meta},
			func(cm *corev1.ConfigMap) { change(cm) })
	}
	harness.Must(t, err)
}

// request returns a request about the lock object with an administrator's rights.
func (s scene) request(verb string) *rest.Request {
	client := s.admin.CoreV1().RESTClient()
	if s.kind == locktest.Lease {
		client = s.admin.CoordinationV1().RESTClient()
	}
	return client.Verb(verb).Namespace(s.namespace).Resource(string(s.kind)).Name(lockName)
}

// remove deletes the lock object, if there is one.
func (s scene) remove(t *testing.T) {
	t.Helper()
	err := s.request(http.MethodDelete).Do(t.Context()).Error()
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// awaitAbsent waits until the watch cache of the API server does not have the lock object. Otherwise a watch without a version would
// start with the object of an earlier check.
func (s scene) awaitAbsent(t *testing.T) {
	t.Helper()
	harness.Until(t, "deletion is in the watch cache", func() bool {
		return apierrors.IsNotFound(s.request(http.MethodGet).Param("resourceVersion", "0").Do(t.Context()).Error())
	})
}
