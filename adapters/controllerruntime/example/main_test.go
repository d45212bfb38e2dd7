package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/testutil/waits"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

// sharedFolder is the variable with the folder of the locks and counts of all replicas.
const sharedFolder = "EXAMPLE_TEST_FOLDER"

func TestMain(m *testing.M) {
	if os.Getenv(sharedFolder) != "" {
		if err := run(ctrl.SetupSignalHandler(), func(c client.Client) reconcile.Reconciler { return alone{&reconciler{c}} }); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	cluster.Main(m, cluster.Options{WithoutControllers: true})
}

// alone records reconciles, and whether another process reconciles at the same time. The kernel unlocks the file of a killed
// process.
type alone struct{ reconcile.Reconciler }

func (a alone) Reconcile(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	folder := os.Getenv(sharedFolder)
	lock, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		panic(err)
	}
	defer lock.Close()
	name := "reconciled-" + os.Getenv("POD_NAME")
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		name = "overlap-" + os.Getenv("POD_NAME")
	}
	file, err := os.OpenFile(filepath.Join(folder, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	if _, err := file.WriteString("."); err != nil {
		panic(err)
	}
	return a.Reconciler.Reconcile(ctx, r)
}

// operator is the example with its replicas in one namespace.
type operator struct {
	namespace, folder string
	client            kube.Client
	n                 int
}

func (o *operator) replica(t *testing.T, pod, revision string) *harness.Process {
	t.Helper()
	config := cluster.Shared(t).Identity(t, cluster.IdentityOptions{
		Namespace: o.namespace, PodName: pod,
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "update"}},
		},
		ClusterRules: []rbacv1.PolicyRule{{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"}, Verbs: []string{"get", "list", "watch"},
		}},
	})
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := cluster.WriteKubeconfig(kubeconfig, config, o.namespace); err != nil {
		t.Fatal(err)
	}
	return harness.Start(t, pod, []string{
		"KUBECONFIG=" + kubeconfig, "POD_NAME=" + pod, "POD_NAMESPACE=" + o.namespace, "REVISION=" + revision, sharedFolder + "=" + o.folder,
	}, os.Args[0])
}

// handledBy changes a ConfigMap and waits until this replica has reconciled it.
func (o *operator) handledBy(t *testing.T, pod string) {
	t.Helper()
	o.n++
	before := o.reconciles(pod)
	objects := o.client.Kube().CoreV1().ConfigMaps(o.namespace)
	object, err := objects.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("object-%d", o.n)}, Data: map[string]string{"value": "four"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	waits.Until(t, "the ConfigMap was handled by "+pod, func() bool {
		now, err := objects.Get(t.Context(), object.Name, metav1.GetOptions{})
		return err == nil && now.Data["length"] == "4" && o.reconciles(pod) > before
	})
}

// reconciles returns the number of reconciles of a replica.
func (o *operator) reconciles(pod string) int {
	text, _ := os.ReadFile(filepath.Join(o.folder, "reconciled-"+pod)) // it does not exist before the first
	return len(text)
}

// makeDefault changes the default revision.
func (o *operator) makeDefault(t *testing.T, revision string) {
	t.Helper()
	hook := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "istio-revision-tag-default"}}
	err := cluster.Edit(t.Context(), o.client.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations(), hook,
		func(hook *admissionv1.MutatingWebhookConfiguration) {
			hook.Labels = map[string]string{"istio.io/rev": revision}
		})
	if err != nil {
		t.Fatal(err)
	}
}

// Replicas of two revisions hand over on a rollout, a change of the default revision, a transfer and a crash. Never do two
// processes reconcile at the same time.
func TestExample_OneReconciles(t *testing.T) {
	c := cluster.Shared(t)
	o := &operator{namespace: c.Namespace(t), folder: t.TempDir(), client: c.Client(t)}
	o.makeDefault(t, "stable")
	first := o.replica(t, "stable-0", "stable")
	o.handledBy(t, "stable-0")

	// Rollout: the new replica follows, the old replica stops.
	o.replica(t, "stable-1", "stable")
	first.Signal(t, syscall.SIGTERM)
	if code := first.Exit(t); code != 0 {
		t.Errorf("stable-0 exited with %d", code)
	}
	o.handledBy(t, "stable-1")

	// Default change, back and forth.
	canary := o.replica(t, "canary-0", "canary")
	for range 3 {
		o.makeDefault(t, "canary")
		o.handledBy(t, "canary-0")
		o.makeDefault(t, "stable")
		o.handledBy(t, "stable-1")
	}

	// Transfer by an operator.
	observer, err := leaderelection.New(o.client, leaderelection.Config{Namespace: o.namespace, ElectionID: "example", Identity: "observer"})
	if err != nil {
		t.Fatal(err)
	}
	admin, err := observer.Operator("test")
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Transfer(t.Context(), "canary-0", "canary", "test", time.Hour); err != nil {
		t.Fatal(err)
	}
	o.handledBy(t, "canary-0")

	// Crash: the lease expires.
	canary.Kill()
	o.handledBy(t, "stable-1")

	overlaps, err := filepath.Glob(filepath.Join(o.folder, "overlap-*"))
	if err != nil || len(overlaps) > 0 {
		t.Errorf("two processes reconciled concurrently: %v, %v", overlaps, err)
	}
}
