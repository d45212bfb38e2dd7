package k8sresourcelock

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

func lockOn(client corev1client.ConfigMapsGetter) *ConfigMapLock {
	return &ConfigMapLock{
		ConfigMapMeta: metav1.ObjectMeta{Namespace: "istio-system", Name: "istio-leader"},
		Client:        client,
		LockConfig:    ResourceLockConfig{Identity: "pod-a", Key: "stable"},
	}
}

// ended returns a watch that shows these events and ends.
func ended(events ...watch.Event) watch.Interface {
	w := watch.NewFakeWithChanSize(len(events), false)
	for _, e := range events {
		w.Action(e.Type, e.Object)
	}
	w.Stop()
	return w
}

// playing returns a lock with a watch that shows these events and ends.
func playing(events ...watch.Event) *ConfigMapLock {
	return lockOn(&unversionedStore{watch: func(metav1.ListOptions) (watch.Interface, error) { return ended(events...), nil }})
}

func configMap(name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: version}}
}

func TestWatchEvents(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old").Status()
	gone := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonGone}
	broken := apierrors.NewInternalError(errors.New("etcd")).Status()
	mine := watch.Event{Type: watch.Added, Object: configMap("istio-leader", "11")}
	tests := []struct {
		name   string
		events []watch.Event
		seen   int
		resume string
		err    func(error) bool // nil is an ordinary end
	}{
		{name: "one change", events: []watch.Event{mine}, seen: 1, resume: "11"},
		{name: "deletion", events: []watch.Event{{Type: watch.Deleted, Object: configMap("istio-leader", "12")}}, seen: 1, resume: "12"},
		{name: "bookmark", events: []watch.Event{mine, {Type: watch.Bookmark, Object: configMap("", "15")}}, seen: 1, resume: "15"},
		{name: "bookmark without a version", events: []watch.Event{mine, {Type: watch.Bookmark, Object: configMap("", "")}}, seen: 1, resume: "11"},
		{name: "another object", events: []watch.Event{{Type: watch.Added, Object: configMap("other", "16")}}, resume: "16"},
		{name: "expired", events: []watch.Event{mine, {Type: watch.Error, Object: &expired}}, seen: 1, err: apierrors.IsResourceExpired},
		{name: "gone", events: []watch.Event{{Type: watch.Error, Object: &gone}, mine}, err: apierrors.IsGone},
		{name: "error of the server", events: []watch.Event{mine, {Type: watch.Error, Object: &broken}}, seen: 1, resume: "11", err: apierrors.IsInternalError},
		{name: "error without a status", events: []watch.Event{{Type: watch.Error}}, resume: "10", err: func(err error) bool { return err != nil }},
		{name: "another kind", events: []watch.Event{{Type: watch.Added, Object: &coordinationv1.Lease{}}}, resume: "10", err: func(err error) bool { return strings.Contains(err.Error(), "Lease") }},
		{name: "no object", events: []watch.Event{{Type: watch.Added}}, resume: "10", err: func(err error) bool { return err != nil }},
		{name: "unknown type", events: []watch.Event{{Type: "RENAMED", Object: configMap("istio-leader", "12")}}, resume: "10", err: func(err error) bool { return strings.Contains(err.Error(), "RENAMED") }},
		{name: "closed before it was accepted", resume: "10", err: func(err error) bool { return errors.Is(err, errNotAccepted) }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ups, seen := 0, 0
			resume, err := playing(tt.events...).Watch(t.Context(), "10", func() { ups++ }, func(Snapshot) { seen++ })
			if resume != tt.resume || seen != tt.seen {
				t.Errorf("resume %q, %d seen; want %q, %d", resume, seen, tt.resume, tt.seen)
			}
			if tt.err == nil && err != nil || tt.err != nil && (err == nil || !tt.err(err)) {
				t.Errorf("error %v", err)
			}
			if err != nil && !strings.HasPrefix(err.Error(), "configmap istio-system/istio-leader: watch: ") {
				t.Errorf("error %q does not name the lock", err)
			}
			if want := min(len(tt.events), 1); ups != want {
				t.Errorf("connected called %d times, want %d", ups, want)
			}
		})
	}
}

func TestWatch_ContextDone(t *testing.T) {
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		l := playing(
			watch.Event{Type: watch.Added, Object: configMap("istio-leader", "11")},
			watch.Event{Type: watch.Modified, Object: configMap("istio-leader", "12")},
		)
		seen := 0
		resume, err := l.Watch(ctx, "", func() {}, func(Snapshot) { seen++; cancel() })
		if seen != 1 || resume != "11" || err != nil {
			t.Fatalf("%d seen, resume %q, %v", seen, resume, err)
		}
	}
}

func TestWatchOptions(t *testing.T) {
	var got metav1.ListOptions
	l := lockOn(&unversionedStore{watch: func(opts metav1.ListOptions) (watch.Interface, error) {
		got = opts
		return watch.NewEmptyWatch(), nil
	}})
	limits := map[int64]bool{}
	for range 20 {
		_, _ = l.Watch(t.Context(), "10", nil, nil)
		if got.FieldSelector != "metadata.name=istio-leader" || got.ResourceVersion != "10" || !got.AllowWatchBookmarks {
			t.Fatalf("%+v", got)
		}
		limit := time.Duration(*got.TimeoutSeconds) * time.Second
		if limit < 5*time.Minute || limit > 10*time.Minute {
			t.Errorf("limit %v, want 5 to 10 minutes", limit)
		}
		limits[*got.TimeoutSeconds] = true
	}
	if len(limits) < 2 {
		t.Error("all watches have the same limit, so they reconnect together")
	}
}

// opening is the call that opens a watch, with its context.
type opening struct {
	ctx context.Context
	w   *watch.FakeWatcher
}

// open returns a function that opens a watch after a time. If ignores is set, it ignores its context.
func (o *opening) open(takes time.Duration, ignores bool) func(context.Context) (watch.Interface, error) {
	return func(ctx context.Context) (watch.Interface, error) {
		o.ctx, o.w = ctx, watch.NewFake()
		done := ctx.Done()
		if ignores {
			done = nil
		}
		select {
		case <-time.After(takes):
			return o.w, nil
		case <-done:
			return nil, ctx.Err()
		}
	}
}

// A watch must be accepted within acceptTimeout.
func TestOpenWatch_Timeout(t *testing.T) {
	for name, c := range map[string]struct {
		takes   time.Duration
		ignores bool
		ok      bool
	}{
		"in time":              {acceptTimeout - time.Millisecond, false, true},
		"too late":             {acceptTimeout + time.Minute, false, false},
		"too late, but opened": {acceptTimeout + time.Minute, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var o opening
				w, end, err := openWatch(t.Context(), o.open(c.takes, c.ignores))
				took := time.Since(began)
				if c.ok {
					if err != nil || w != watch.Interface(o.w) || o.ctx.Err() != nil {
						t.Fatalf("error %v, context %v", err, o.ctx.Err())
					}
					<-time.After(2 * acceptTimeout) // the limit is for acceptance only
					if o.ctx.Err() != nil {
						t.Error("an accepted watch ended")
					}
					end()
				} else if !errors.Is(err, context.DeadlineExceeded) || w != nil || !c.ignores && took != acceptTimeout {
					t.Errorf("error %v after %v", err, took)
				}
				if o.ctx.Err() == nil || (c.ok || c.ignores) && !o.w.IsStopped() {
					t.Errorf("context: %v, stopped: %v", o.ctx.Err(), o.w.IsStopped())
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		var o opening
		if _, _, err := openWatch(ctx, o.open(time.Minute, false)); !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended by the caller: %v", err)
		}
		if _, _, err := openWatch(t.Context(), func(ctx context.Context) (watch.Interface, error) { o.ctx = ctx; return nil, errNoClient }); !errors.Is(err, errNoClient) || o.ctx.Err() == nil {
			t.Errorf("refused: %v, context %v", err, o.ctx.Err())
		}
	})
}
