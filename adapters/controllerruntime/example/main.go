// Command example is an operator whose controller runs in one replica of the default revision. It writes the length of the value
// of each ConfigMap of its namespace into the ConfigMap.
//
// It needs the environment variables POD_NAME, POD_NAMESPACE and REVISION, and finds the API server as kubectl does.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"incumbent.dev/incumbent/adapters/controllerruntime"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/pkg/revisions"
)

func main() {
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "example:", err)
		os.Exit(1)
	}
}

// run runs the operator until ctx ends.
func run(ctx context.Context) error {
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	reader, err := kube.NewClient(config)
	if err != nil {
		return err
	}
	namespace, revision := os.Getenv("POD_NAMESPACE"), os.Getenv("REVISION")
	watcher := revisions.NewDefaultWatcher(reader, revision, "istio-system")
	mgr, err := controllerruntime.NewManager(config, leaderelection.Config{
		Namespace: namespace, ElectionID: "example", Identity: os.Getenv("POD_NAME"), Revision: revision, DefaultWatcher: watcher,
	}, manager.Options{
		Cache:   cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		Metrics: metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	if err := mgr.Add(everywhere{watcher}); err != nil {
		return err
	}
	mgr.Warm(&corev1.ConfigMap{})
	mgr.InTerms(func(_ context.Context, term manager.Manager) error {
		return ctrl.NewControllerManagedBy(term).For(&corev1.ConfigMap{}).
			Complete(controllerruntime.IgnoreNotLeader(reconcile.Reconciler(&reconciler{term.GetClient()})))
	})
	return mgr.Start(ctx)
}

// everywhere watches the default revision in every replica.
type everywhere struct{ revisions.DefaultWatcher }

func (w everywhere) Start(ctx context.Context) error {
	w.Run(ctx.Done())
	return nil
}

func (everywhere) NeedLeaderElection() bool { return false }

type reconciler struct{ client.Client }

func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var object corev1.ConfigMap
	if err := r.Get(ctx, request.NamespacedName, &object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	length := strconv.Itoa(len(object.Data["value"]))
	if object.Data["length"] == length {
		return reconcile.Result{}, nil
	}
	object.Data = map[string]string{"value": object.Data["value"], "length": length}
	return reconcile.Result{}, r.Update(ctx, &object)
}
