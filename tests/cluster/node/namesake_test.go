package node

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
)

// What a node still has to do for a Pod that is gone does not touch another one that has got its
// name since.
func TestANamesakeIsLeftAlone(t *testing.T) {
	c := cluster.Shared(t)
	home := c.Namespace(t)
	n, err := New(Options{Config: c.Admin(), Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.http.CloseIdleConnections()
	pods := n.client.CoreV1().Pods(home)
	spec := corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "replica", Image: "none"}}}
	here, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	earlier := here.DeepCopy()
	earlier.UID = "11111111-2222-3333-4444-555555555555"
	w := n.newWorker(t.Context(), earlier)
	defer w.gone()
	unchanged := func(what string) {
		t.Helper()
		now, err := pods.Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil || now.UID != here.UID || now.ResourceVersion != here.ResourceVersion {
			t.Errorf("%s: it is %+v (%v)", what, now, err)
		}
		here = now
	}

	if w.bind() {
		t.Error("the namesake counts as bound")
	}
	unchanged("bound")
	w.status.phase(corev1.PodFailed)
	if err := w.status.write(t.Context()); !errors.Is(err, errFinal) {
		t.Errorf("writing the status: %v", err)
	}
	unchanged("told")
	w.deleteObject()
	unchanged("deleted")

	// Nor is it taken for bound by an earlier try when it is bound to this very node.
	err = pods.Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Namespace: home}, Target: corev1.ObjectReference{Kind: "Node", Name: n.options.Name},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if w.bind() {
		t.Error("the namesake on this node counts as bound")
	}
	itself := n.newWorker(t.Context(), &corev1.Pod{ObjectMeta: here.ObjectMeta})
	defer itself.gone()
	if !itself.bind() {
		t.Error("what an earlier try has bound does not count as bound")
	}
	itself.deleteObject()
	if _, err := pods.Get(t.Context(), "one", metav1.GetOptions{}); err == nil {
		t.Error("its own object was not deleted")
	}
	if itself.bind() {
		t.Error("what is gone counts as bound")
	}
}

// once fails the first request of each kind, as a connection does that is reset.
type once struct {
	next http.RoundTripper
	seen map[string]bool
}

func (o *once) RoundTrip(r *http.Request) (*http.Response, error) {
	if what := r.Method + " " + r.URL.Path; !o.seen[what] {
		o.seen[what] = true
		return nil, context.DeadlineExceeded
	}
	return o.next.RoundTrip(r)
}

// A request that fails once is sent again: a Pod is bound, told of and deleted all the same.
func TestARequestThatFailsOnceIsSentAgain(t *testing.T) {
	c := cluster.Shared(t)
	home := c.Namespace(t)
	config := c.Admin()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &once{next, map[string]bool{}} })
	n, err := New(Options{Config: config, Dir: t.TempDir(), Name: "patient", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer n.http.CloseIdleConnections()
	n.address = "127.0.0.8"
	direct := clientOf(t, c.Admin())
	spec := corev1.PodSpec{SchedulerName: "nobody", Containers: []corev1.Container{{Name: "replica", Image: "none"}}}
	pod, err := direct.CoreV1().Pods(home).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !retry(t.Context(), n.report("registering"), n.register) {
		t.Error("the node is not registered")
	}
	w := n.newWorker(t.Context(), pod)
	defer w.gone()
	if !w.bind() {
		t.Error("it is not bound")
	}
	if !w.setUp() {
		t.Error("it has no files")
	}
	w.status.placed("127.0.0.9")
	if !retry(t.Context(), w.complain("writing"), w.status.write) {
		t.Error("its status is not written")
	}
	now, err := direct.CoreV1().Pods(home).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || now.Spec.NodeName != "patient" || now.Status.PodIP != "127.0.0.9" {
		t.Errorf("it is %+v (%v)", now, err)
	}
	w.deleteObject()
	if _, err := direct.CoreV1().Pods(home).Get(t.Context(), "one", metav1.GetOptions{}); err == nil {
		t.Error("it is not deleted")
	}
	if err := direct.CoreV1().Nodes().Delete(t.Context(), "patient", metav1.DeleteOptions{}); err != nil {
		t.Errorf("the node's object: %v", err)
	}
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	n, err := New(Options{Config: config, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.http.CloseIdleConnections)
	return n.client
}
