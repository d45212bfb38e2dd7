package migration

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/atomic"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lockName = "an-election"

var (
	errAway   = errors.New("connection refused by the test")
	resource  = schema.GroupResource{Resource: "configmaps"}
	forbidden = apierrors.NewForbidden(resource, lockName, errors.New("no"))
)

func TestObservation(t *testing.T) {
	begin := time.Now()
	record := func(content string) locks.Snapshot {
		return locks.Snapshot{
			Exists: true, Record: locks.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 10, LeaderTransitions: 3},
			Raw: []byte(content),
		}
	}
	released := record("r")
	released.Record.HolderIdentity = ""
	type read struct {
		snap  locks.Snapshot
		err   error
		after time.Duration
		moves bool
		again bool
		want  string
	}
	first := read{snap: record("1"), again: true, want: "seen"}
	renewed := read{snap: record("2"), again: true, want: "renewed"}
	for name, reads := range map[string][]read{
		"no lock":     {{}},
		"released":    {{snap: released}},
		"renewed":     {first, renewed, renewed, {snap: released}},
		"stale":       {first, {snap: record("1"), after: 10 * time.Second, again: true, want: "seen"}, {snap: record("1"), after: 11 * time.Second, want: "stale"}},
		"holder died": {first, renewed, {snap: record("2"), after: 11 * time.Second, want: "stale"}},
		"migrates":    {first, {snap: record("2"), moves: true}},
		"forbidden":   {{err: forbidden}},
		"away":        {{err: errAway, again: true}, first},
	} {
		var o observation
		for i, r := range reads {
			var again bool
			o, again = o.next(r.snap, r.err, begin.Add(r.after), r.moves)
			if got := [...]string{"", "seen", "renewed", "stale"}[o.state]; got != r.want || again != r.again {
				t.Errorf("%s, read %d: %q, again %v", name, i, got, again)
			}
		}
	}
}

// A process that uses both types, or may use both, is no problem.
func TestMigrates(t *testing.T) {
	const configmap, lease = "configmap", "lease"
	for name, x := range map[string]struct {
		ours, holder, marker string
		want                 bool
	}{
		"the holder of our ConfigMap holds the Lease": {configmap, "a", "", true},
		"another process holds the Lease":             {configmap, "b", "v1 b 3 handover", false},
		"an incumbent holds the ConfigMap":            {lease, "b", "v1 b 3 handover", true},
		"an istiod holds the ConfigMap":               {lease, "b", "", false},
		"an istiod left the marker of an incumbent":   {lease, "b", "v1 a 3 handover", false},
	} {
		other := locks.Snapshot{Exists: true, Raw: []byte(x.holder), Record: locks.LeaderElectionRecord{HolderIdentity: x.holder}, Annotations: map[string]string{record.MarkerAnnotation: x.marker}}
		ours := leaderelection.Status{LockType: leaderelection.LockType(x.ours)}
		ours.Holder = "a"
		if got := migrates(other, ours); got != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

type answer = func(apiserver.Request) apiserver.Fault

func fails(err error) answer {
	return func(apiserver.Request) apiserver.Fault { return apiserver.Fault{Err: err} }
}

var (
	notFound = fails(apierrors.NewNotFound(resource, lockName))
	away     = fails(errAway)
)

type recordedEvents struct{ all []string }

func (e *recordedEvents) Eventf(object runtime.Object, kind, reason, message string, args ...any) {
	o := object.(*corev1.ObjectReference)
	e.all = append(e.all, fmt.Sprintf("%s %s %s/%s %s: ", kind, o.Kind, o.Namespace, o.Name, reason)+fmt.Sprintf(message, args...))
}

// newCheck returns the check of one election with a Lease lock. The function answers its requests.
func newCheck(t *testing.T, retry time.Duration, log *slog.Logger, on answer) (*LockTypeCheck, *leaderelection.LeaderElection, *recordedEvents) {
	t.Helper()
	server := apiserver.New()
	server.On(on)
	var client kube.Client = cluster.ClientFor(t, server.Config())
	le, err := leaderelection.New(client, leaderelection.Config{
		Namespace: "home", Identity: "pilot-a", ElectionID: lockName, Lock: leaderelection.LockTypeLease, Logger: log,
	})
	harness.Must(t, err)
	events := &recordedEvents{}
	c := NewLockTypeCheck(Config{Client: client, Events: events, Registry: prometheus.NewRegistry(), Logger: log, RetryPeriod: retry})
	c.Watch(le)
	return c, le, events
}

func heldMetric(t *testing.T, c *LockTypeCheck) float64 {
	t.Helper()
	families, err := c.config.Registry.(*prometheus.Registry).Gather()
	harness.Must(t, err)
	return families[0].GetMetric()[0].GetGauge().GetValue()
}

func TestCheck_ReportsEachStateOnce(t *testing.T) {
	held := func(n int) answer {
		record := fmt.Sprintf(`{"holderIdentity":"x","leaseDurationSeconds":10,"leaderTransitions":%d}`, n)
		return func(apiserver.Request) apiserver.Fault {
			return apiserver.Fault{Object: corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Name: lockName, Annotations: map[string]string{locks.LeaderElectionRecordAnnotationKey: record}},
			}}
		}
	}
	denied := fails(forbidden)
	var current answer
	text := &harness.Log{}
	c, le, events := newCheck(t, 0, slog.New(slog.NewTextHandler(text, nil)), func(r apiserver.Request) apiserver.Fault {
		if r.Limit == 0 || r.Limit > readTimeout {
			t.Errorf("%s may take until %v", r, r.Limit)
		}
		if r.String() != "get configmaps home/"+lockName {
			t.Errorf("unexpected request %s", r)
		}
		return current(r)
	})
	begin := time.Now()
	const different, failed, problem = "another installation uses a different lock type", "failed to read", "x holds the configmap"
	for i, step := range []struct {
		answer answer
		at     time.Duration
		again  bool
		held   float64
		logged string
		state  string
	}{
		{notFound, 0, false, 0, "", ""},
		{away, 0, true, 0, failed, ""},
		{away, 0, true, 0, "", ""},
		{denied, 0, false, 0, failed, ""}, // for another reason
		{held(1), 0, true, 0, "", ""},
		{held(1), 10 * time.Second, true, 0, "", ""},
		{held(2), 11 * time.Second, true, 1, different, problem},
		{held(3), 12 * time.Second, true, 1, "", problem},
		{away, 13 * time.Second, true, 1, failed, problem},
		{held(3), 22 * time.Second, true, 1, "", problem},
		{held(3), 23 * time.Second, false, 0, "no longer holds", ""},
		{notFound, 24 * time.Second, false, 0, "", ""},
		{held(4), 25 * time.Second, true, 0, "", ""},
		{held(4), 36 * time.Second, false, 0, "found a stale lock", ""},
		{held(4), 37 * time.Second, false, 0, "", ""},
	} {
		current = step.answer
		before := text.String()
		if again := c.check(t.Context(), le, begin.Add(step.at)); again != step.again {
			t.Errorf("step %d: again %v", i, again)
		}
		logged := strings.TrimPrefix(text.String(), before)
		if (step.logged == "") != (logged == "") || !strings.Contains(logged, step.logged) || strings.Count(logged, "\n") > 1 {
			t.Errorf("step %d: logged %q", i, logged)
		}
		if got := heldMetric(t, c); got != step.held {
			t.Errorf("step %d: the metric is %v", i, got)
		}
		if state := c.Problem(le); state != step.state {
			t.Errorf("step %d: the problem is %q", i, state)
		}
	}
	const warning = "Warning %s home/" + lockName + " LeaderElection: pilot-a uses the lease while x holds the configmap: two leaders can be active"
	want := fmt.Sprintf(warning, "Lease") + "\n" + fmt.Sprintf(warning, "ConfigMap")
	if got := strings.Join(events.all, "\n"); got != want {
		t.Errorf("the Events are\n%s", got)
	}
}

func TestRun_Reads(t *testing.T) {
	const period = 10*time.Minute + time.Second
	for name, test := range map[string]struct {
		retry  time.Duration
		answer answer
		reads  int
	}{
		"no lock":      {0, notFound, 1},
		"away":         {0, away, 1 + int(period/leaderelection.DefaultRetryPeriod)},
		"longer retry": {time.Minute, away, 11},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reads atomic.Int64
				c, _, _ := newCheck(t, test.retry, slog.New(slog.DiscardHandler), func(r apiserver.Request) apiserver.Fault {
					reads.Inc()
					return test.answer(r)
				})
				harness.Background(t, c.Run)
				time.Sleep(period)
				synctest.Wait()
				if n := int(reads.Load()); n != test.reads {
					t.Errorf("%d reads, want %d", n, test.reads)
				}
				c.wake.Send() // as the start of a term does
				synctest.Wait()
				if n := int(reads.Load()); n != test.reads+1 {
					t.Errorf("%d reads after waking up", n-test.reads)
				}
			})
		})
	}
}
