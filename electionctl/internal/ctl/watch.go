package ctl

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
)

func (p *Program) watch() *cobra.Command {
	cmd := &cobra.Command{
		Use:               "watch [ELECTION]",
		Short:             "Print changes until Ctrl-C",
		Long:              "Prints the current holders, and then each change: terms, requests, handovers, holds. Renewals are not printed. Times are from this machine.",
		Example:           "  " + name() + " watch -A",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: p.completeElections,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			only := ""
			if len(args) > 0 {
				only = args[0]
				if _, _, err := p.one(cmd.Context(), c, only, k8sleaderelection.DefaultRevision{}); err != nil {
					return err
				}
			}
			return p.follow(cmd.Context(), c, only)
		},
	}
	p.namespaces(cmd)
	return cmd
}

// changed is a changed or deleted lock.
type changed struct {
	lock inspect.Lock
	gone bool
}

// follow prints changes until ctx ends.
func (p *Program) follow(ctx context.Context, c *clients, only string) error {
	namespace, err := p.namespace()
	if err != nil {
		return err
	}
	s, err := c.look(ctx, namespace)
	if err != nil { // an informer would retry forever
		return err
	}
	if len(s.locks) == 0 {
		fmt.Fprintln(p.ErrOut, plain(p.nothing(ctx, c, s).Error()+"; watching for new elections"))
	}
	changes := make(chan changed)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, informer := range c.informers(namespace) {
		last := "" // repeated errors are printed once
		_ = informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) {
			if ctx.Err() == nil && err.Error() != last {
				last = err.Error()
				fmt.Fprintln(p.ErrOut, plain(fmt.Sprintf("warning: watch interrupted; retrying: %v", err)))
			}
		})
		if _, err := informer.AddEventHandler(handler(ctx, changes)); err != nil {
			return err
		}
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	known := map[string]*inspect.Election{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case change := <-changes:
			if only == "" || change.lock.Name == only {
				p.tell(known, change)
			}
		}
	}
}

func (c *clients) informers(namespace string) []cache.SharedIndexInformer {
	leases := informers.NewSharedInformerFactoryWithOptions(c.kube, 0, informers.WithNamespace(namespace))
	configMaps := metadatainformer.NewFilteredSharedInformerFactory(c.meta, 0, namespace, nil)
	return []cache.SharedIndexInformer{
		leases.Coordination().V1().Leases().Informer(),
		configMaps.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")).Informer(),
	}
}

// handler sends the locks of changed objects.
func handler(ctx context.Context, changes chan<- changed) cache.ResourceEventHandler {
	send := func(object any, gone bool) {
		if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object = last.Obj
		}
		var lock inspect.Lock
		var ok bool
		switch o := object.(type) {
		case *coordinationv1.Lease:
			lock, ok = inspect.FromLease(o)
		case *metav1.PartialObjectMetadata:
			lock, ok = inspect.FromConfigMap(&o.ObjectMeta)
		}
		if !ok {
			return
		}
		select {
		case changes <- changed{lock: lock, gone: gone}:
		case <-ctx.Done():
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { send(o, false) },
		UpdateFunc: func(_, o any) { send(o, false) },
		DeleteFunc: func(o any) { send(o, true) },
	}
}

// tell prints the changes of a lock.
func (p *Program) tell(known map[string]*inspect.Election, c changed) {
	key := c.lock.Kind + "/" + c.lock.Namespace + "/" + c.lock.Name
	var after *inspect.Election
	if !c.gone {
		e := inspect.Of(c.lock)
		after = &e
	}
	for _, change := range inspect.Changes(known[key], after) {
		where := c.lock.Name
		if p.all {
			where = c.lock.Namespace + "/" + where
		}
		now := time.Now() //nolint:forbidigo // dates the lines
		safe{p.Out}.line("%s  %s: %s", now.UTC().Format("2006-01-02T15:04:05.000Z"), where, change)
	}
	known[key] = after
}
