package leaderelection

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

type silentObserver struct{ _ int }

func (*silentObserver) Phase(_, _, _, _ string)                                           {}
func (*silentObserver) Call(_, _, _, _ string, _ time.Duration)                           {}
func (*silentObserver) Term(string, bool, string)                                         {}
func (*silentObserver) StatusChanged(string)                                              {}
func (*silentObserver) ObserveDuration(string, k8sleaderelection.Interval, time.Duration) {}

type silentWitness struct{ _ int }

func (*silentWitness) Register(k8sleaderelection.WitnessedTerm) {}
func (*silentWitness) Remove(k8sleaderelection.WitnessedTerm)   {}

type silentRecorder struct{ _ int }

func (*silentRecorder) Eventf(k8sruntime.Object, string, string, string, ...any) {}

// Config sets every field of the elector's configuration that elections offer.
func TestElectorConfig(t *testing.T) {
	stuck := 0
	cfg := Config{
		Namespace: "istio-system", ElectionID: "new", Identity: "a", Revision: "canary",
		LeaseDuration: 40 * time.Second, RenewDeadline: 20 * time.Second, RetryPeriod: 3 * time.Second,
		DrainLimit: 4 * time.Second, StopLimit: 5 * time.Second, PeerGrace: 6 * time.Second,
		PreemptImmediately: true, ExitOnStuckDrain: true, OnStuckDrain: func() { stuck++ },
		DefaultWatcher: watcher("?"), Observer: &silentObserver{}, Logger: slog.New(slog.DiscardHandler), HealthTolerance: time.Second,
		Witness: &silentWitness{},
	}
	l, err := New(unreachable(t), cfg)
	harness.Must(t, err)
	l.shared = &k8sresourcelock.Shared{MaxConcurrentCalls: 1}
	l.AddFitnessCheck(func(context.Context) error { return errPlay })
	c := l.electorConfig(l.client.Kube())
	notOffered := []string{"KeyComparison", "Callbacks", "Coordinated", "Successor"}
	for v, i := reflect.ValueOf(c), 0; i < v.NumField(); i++ {
		name := v.Type().Field(i).Name
		if v.Field(i).IsZero() != slices.Contains(notOffered, name) {
			t.Errorf("%s: %v", name, v.Field(i))
		}
	}
	if c.LeaseDuration != cfg.LeaseDuration || c.RenewDeadline != cfg.RenewDeadline || c.RetryPeriod != cfg.RetryPeriod ||
		c.DrainLimit != cfg.DrainLimit || c.StopLimit != cfg.StopLimit || c.PeerGrace != cfg.PeerGrace || c.SyncWait != 3*time.Second {
		t.Errorf("%+v", c)
	}
	if c.Name != "new" || c.Gate != k8sleaderelection.Gate(l.gate) || c.Clock != l.clock || c.WatchDog != l.health || c.Shared != l.shared ||
		c.Observer != cfg.Observer || c.Logger != cfg.Logger || c.Witness != cfg.Witness || c.Lock.Describe() != "istio-system/new" || c.Lock.Identity() != "a" {
		t.Errorf("%+v", c)
	}
	if c.OnStuckDrain(); stuck != 1 || !errors.Is(c.FitnessCheck(t.Context()), errPlay) || len(c.RunFunctions) != 1 {
		t.Errorf("OnStuck called %d times, fit: %v, %d functions", stuck, c.FitnessCheck(t.Context()), len(c.RunFunctions))
	}
	// The health check uses HealthTolerance and the elector of this election.
	if reflect.DeepEqual(l.health, k8sleaderelection.NewLeaderHealthzAdaptor(cfg.HealthTolerance)) {
		t.Error("the health check has no elector")
	}
	plain, err := New(unreachable(t), Config{Namespace: "istio-system", ElectionID: "new", Identity: "a", PerRevision: true, DefaultWatcher: watcher("?")})
	harness.Must(t, err)
	if c = plain.electorConfig(plain.client.Kube()); c.Ranked || c.SyncWait != 0 || c.PreemptImmediately || c.ExitOnStuckDrain || c.FitnessCheck != nil || c.Shared != nil {
		t.Errorf("%+v", c)
	}
}

func TestLock(t *testing.T) {
	recorder := &silentRecorder{}
	shared := &k8sresourcelock.Shared{}
	who := k8sresourcelock.ResourceLockConfig{Identity: "a", Key: "^canary", EventRecorder: recorder}
	for _, kind := range []LockType{LockTypeConfigMap, LockTypeLease} {
		l := electionFor(t, Config{Lock: kind, Revision: "canary", Remote: true, EventRecorder: recorder})
		switch lock := l.lock(l.client.Kube(), shared).(type) {
		case *k8sresourcelock.ConfigMapLock:
			if kind != LockTypeConfigMap || lock.ConfigMapMeta.Name != "new" || lock.ConfigMapMeta.Namespace != "istio-system" || lock.Client == nil || lock.LockConfig != who {
				t.Errorf("%v: %+v", kind, lock)
			}
		case *k8sresourcelock.LeaseLock:
			if kind != LockTypeLease || lock.LeaseMeta.Name != "new" || lock.LeaseMeta.Namespace != "istio-system" || lock.Client == nil || lock.LockConfig != who || lock.Shared != shared {
				t.Errorf("%v: %+v", kind, lock)
			}
		default:
			t.Errorf("%v: a %T", kind, lock)
		}
	}
	operator, err := electionFor(t, Config{}).Operator("me")
	if err != nil || operator.Requester != "me" || operator.Lock.Describe() != "istio-system/new" || operator.Lock.Identity() != "a" {
		t.Errorf("an operator: %v, %+v", err, operator)
	}
}

// An error of one run function cancels the others and is returned. An error after the cancellation is ignored.
func TestWork(t *testing.T) {
	other := errors.New("another one")
	until := func(err error) func(context.Context) error {
		return func(ctx context.Context) error { <-ctx.Done(); return err }
	}
	at := func(err error) func(context.Context) error {
		return func(context.Context) error { return err }
	}
	echo := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	wordy := func(ctx context.Context) error { <-ctx.Done(); return fmt.Errorf("wrapped: %w", context.Cause(ctx)) }
	ends := func(context.Context) error { runtime.Goexit(); return nil }
	type functions = []func(context.Context) error
	for name, x := range map[string]struct {
		functions functions
		stopped   bool // before the start
		want      []error
		not       error
	}{
		"none":                     {},
		"one returns":              {functions: functions{at(nil)}},
		"one fails":                {functions: functions{at(errPlay)}, want: []error{errPlay}},
		"one fails after the stop": {functions: functions{at(errPlay)}, stopped: true},
		"one is stopped":           {functions: functions{until(errPlay)}, stopped: true},
		"two return":               {functions: functions{at(nil), at(nil)}},
		"first fails":              {functions: functions{at(errPlay), until(nil)}, want: []error{errPlay}},
		"second fails first":       {functions: functions{until(other), at(errPlay)}, want: []error{errPlay, other}},
		"second repeats the cause": {functions: functions{echo, at(errPlay)}, want: []error{errPlay}},
		"second returns Canceled":  {functions: functions{until(context.Canceled), at(errPlay)}, want: []error{errPlay}, not: context.Canceled},
		"second wraps the cause":   {functions: functions{wordy, at(errPlay)}, want: []error{errPlay}},
		"second wraps Canceled": {
			functions: functions{until(fmt.Errorf("wrapped: %w", context.Canceled)), at(errPlay)}, want: []error{errPlay}, not: context.Canceled,
		},
		"two are stopped":            {functions: functions{until(errPlay), until(other)}, stopped: true},
		"one calls Goexit":           {functions: functions{ends, until(nil)}, want: []error{k8sleaderelection.ErrGoexit}},
		"one returns Canceled first": {functions: functions{at(context.Canceled), at(nil)}, want: []error{context.Canceled}},
	} {
		t.Run(name, func(t *testing.T) {
			l := electionFor(t, Config{})
			for _, f := range x.functions {
				l.AddRunContext(f)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if x.stopped {
				cancel()
			}
			err := l.work(ctx)
			if (err != nil) != (len(x.want) > 0) || errors.Is(err, x.not) && x.not != nil {
				t.Errorf("it ended with %v", err)
			}
			for _, want := range x.want {
				if !errors.Is(err, want) {
					t.Errorf("it ended with %v, without %v", err, want)
				}
			}
			if err != nil && strings.Count(err.Error(), errPlay.Error()) > 1 {
				t.Errorf("reported twice: %v", err)
			}
		})
	}
	// The context of a function has ended when all functions have returned.
	var last context.Context
	if err := runAll(t.Context(), functions{func(ctx context.Context) error { last = ctx; return nil }}); err != nil || last.Err() == nil {
		t.Errorf("%v, %v", err, last.Err())
	}
	stopped := make(chan struct{}, 1)
	l := electionFor(t, Config{}).AddRunFunction(func(stop <-chan struct{}) { <-stop; stopped <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.work(ctx); err != nil || len(stopped) != 1 {
		t.Errorf("a function with a channel: %v, stopped %d times", err, len(stopped))
	}
}

// The first failed fitness check determines the error.
func TestFitness(t *testing.T) {
	l := electionFor(t, Config{})
	if l.fitness() != nil {
		t.Error("an election without checks has one")
	}
	asked := ""
	var first, second error
	l.AddFitnessCheck(func(context.Context) error { asked += "1"; return first }).AddFitnessCheck(func(context.Context) error { asked += "2"; return second })
	fit := l.fitness()
	if err := fit(t.Context()); err != nil || asked != "12" {
		t.Errorf("asked %s: %v", asked, err)
	}
	if second = errPlay; !errors.Is(fit(t.Context()), errPlay) || asked != "1212" {
		t.Errorf("asked %s", asked)
	}
	if first = errors.New("unwell"); !errors.Is(fit(t.Context()), first) || asked != "12121" {
		t.Errorf("asked %s", asked)
	}
}
