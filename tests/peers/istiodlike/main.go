// Command istiodlike is a control plane that uses istiod's elector for the namespace and ingress controllers of this
// project. It accepts the arguments of pilot in the chart, but has the fixed timing of istiod.
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"istio.io/istio/pilot/pkg/leaderelection"
	istiokube "istio.io/istio/pkg/kube"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/pilot/controllers/ingress"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pkg/kube"
)

// job is a controller of this project.
type job interface {
	Warm(ctx context.Context) error
	Run(ctx context.Context) error
	Close()
}

func main() {
	flags := flag.NewFlagSet("istiodlike", flag.ExitOnError)
	address := flags.String("address", ":15014", "address of the health endpoint")
	bundle := flags.String("ca-bundle", "", "file with the CA bundle")
	for _, name := range []string{"debug-address", "lease-duration", "renew-deadline", "retry-period"} {
		flags.String(name, "", "ignored")
	}
	if len(os.Args) > 1 && os.Args[1] == "server" {
		_ = flags.Parse(os.Args[2:]) // exits the process
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *address, *bundle); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, address, bundle string) error {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return err
	}
	home, pod, revision := os.Getenv("POD_NAMESPACE"), os.Getenv("POD_NAME"), os.Getenv("REVISION")
	client, err := kube.NewClient(rest.CopyConfig(config), kube.WithOwnConnections())
	if err != nil {
		return err
	}
	locks, err := istiokube.NewClient(istiokube.NewClientConfigForRestConfig(rest.CopyConfig(config)), "istiodlike")
	if err != nil {
		return err
	}
	spread, err := namespace.New(client, namespace.Config{BundleFile: bundle})
	if err != nil {
		return err
	}
	front := types.NamespacedName{Namespace: home, Name: "istio-ingressgateway"}
	addresses, err := ingress.New(client, ingress.Config{Mode: ingress.Strict, Class: "istio", Service: front})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	var electors []*leaderelection.LeaderElection
	for id, j := range map[string]job{leaderelection.NamespaceController: spread, leaderelection.IngressController: addresses} {
		if err := j.Warm(ctx); err != nil {
			return err
		}
		defer j.Close()
		electors = append(electors, leaderelection.NewLeaderElection(home, pod, id, revision, locks).AddRunFunction(func(stop <-chan struct{}) {
			leading, end := context.WithCancel(context.WithoutCancel(ctx))
			defer end()
			go func() { <-stop; end() }()
			if err := j.Run(leading); err != nil {
				log.Print("controller ended: ", err)
			}
		}))
	}
	locks.RunAndWait(ctx.Done())
	for _, e := range electors {
		running.Go(func() { e.Run(ctx.Done()) })
	}
	server := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	running.Go(func() { _ = server.ListenAndServe() })
	<-ctx.Done()
	_ = server.Close()
	running.Wait()
	return nil
}
