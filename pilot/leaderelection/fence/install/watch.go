package install

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/pilot/leaderelection/fence"
)

const (
	// watchPause and watchLongest lie between two tries to watch.
	watchPause, watchLongest = time.Second, time.Minute
	// takenIn is how long an API server may take to act on a change: what is tried before may
	// be answered by what was.
	takenIn = 1500 * time.Millisecond
)

// Watch calls changed when a policy or a binding of any fence was made, changed or deleted,
// and again when API servers should act on that, until ctx ends. It says by failed that it
// cannot watch, once for each spell; the caller then has to look every now and then.
func Watch(ctx context.Context, client kubernetes.Interface, changed func(), failed func(error)) {
	api := client.AdmissionregistrationV1()
	events := make(chan struct{}, 1)
	sources := []*source{{
		kind: policyKind,
		list: func(o metav1.ListOptions) (runtime.Object, error) {
			return api.ValidatingAdmissionPolicies().List(ctx, o)
		},
		watch: func(o metav1.ListOptions) (watch.Interface, error) {
			return api.ValidatingAdmissionPolicies().Watch(ctx, o)
		},
	}, {
		kind: bindingKind,
		list: func(o metav1.ListOptions) (runtime.Object, error) {
			return api.ValidatingAdmissionPolicyBindings().List(ctx, o)
		},
		watch: func(o metav1.ListOptions) (watch.Interface, error) {
			return api.ValidatingAdmissionPolicyBindings().Watch(ctx, o)
		},
	}}
	var all sync.WaitGroup
	defer all.Wait()
	for _, s := range sources {
		s.changed = func() {
			select {
			case events <- struct{}{}:
			default: // one is due anyway
			}
		}
		all.Go(func() { s.follow(ctx, failed) })
	}
	later := time.NewTimer(0)
	later.Stop()
	defer later.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			changed()
			later.Reset(takenIn)
		case <-later.C:
			changed()
		}
	}
}

// source is one kind of object that is watched.
type source struct {
	kind    string
	list    func(metav1.ListOptions) (runtime.Object, error)
	watch   func(metav1.ListOptions) (watch.Interface, error)
	changed func()
	known   map[string]string // what each object said last, by name
}

// follow watches until ctx ends, and begins anew after each failure.
func (s *source) follow(ctx context.Context, failed func(error)) {
	pause, told := watchPause, false
	for ctx.Err() == nil {
		err := s.spell(ctx)
		if err == nil || ctx.Err() != nil {
			pause, told = watchPause, false // a watch ends in the ordinary course of things
		} else {
			if !told {
				failed(fmt.Errorf("watching %s: %w", s.kind, err))
			}
			told = true
			pause = min(2*pause, watchLongest)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// spell lists and then watches until that ends.
func (s *source) spell(ctx context.Context) error {
	list, err := s.list(metav1.ListOptions{})
	if err != nil {
		return err
	}
	version, err := meta.NewAccessor().ResourceVersion(list)
	if err != nil {
		return err
	}
	now := map[string]string{}
	err = meta.EachListItem(list, func(o runtime.Object) error {
		if m, ok := o.(metav1.Object); ok && ofAFence(m) {
			now[m.GetName()] = says(m)
		}
		return nil
	})
	if err != nil {
		return err
	}
	first := s.known == nil
	if !first && !equal(s.known, now) {
		s.changed()
	}
	s.known = now
	w, err := s.watch(metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, open := <-w.ResultChan():
			if !open || event.Type == watch.Error {
				return nil
			}
			s.learn(event)
		}
	}
}

func (s *source) learn(event watch.Event) {
	m, ok := event.Object.(metav1.Object)
	if !ok || event.Type == watch.Bookmark || !ofAFence(m) {
		return
	}
	name := m.GetName()
	if event.Type == watch.Deleted {
		delete(s.known, name)
		s.changed()
		return
	}
	if before, known := s.known[name]; !known || before != says(m) {
		s.known[name] = says(m)
		s.changed()
	}
}

func ofAFence(o metav1.Object) bool {
	return strings.HasPrefix(o.GetName(), fence.PolicyPrefix) || o.GetLabels()[fence.SetLabel] != ""
}

// says changes with what an object says, and not with its status.
func says(o metav1.Object) string { return fmt.Sprint(o.GetUID(), "/", o.GetGeneration()) }

func equal(a, b map[string]string) bool { return len(a) == len(b) && contains(a, b) }
