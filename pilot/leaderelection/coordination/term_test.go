package coordination

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
)

// echo returns a server that answers with the object that was sent, or an error, and counts requests by object name.
func echo(err error) (server *apiserver.Server, sent map[string]int) {
	server, sent = apiserver.New(), map[string]int{}
	server.On(func(r apiserver.Request) apiserver.Fault {
		sent[r.Name]++
		return apiserver.Fault{Object: r.Body, Err: err}
	})
	return server, sent
}

// eventLog records Events, each after the name of its object.
type eventLog []string

func (e *eventLog) Eventf(object runtime.Object, eventType, reason, message string, args ...any) {
	*e = append(*e, object.(metav1.Object).GetName()+" "+eventType+" "+reason+": "+fmt.Sprintf(message, args...))
}

var coordinatedSpec = coordinationv1.LeaseSpec{Strategy: new(coordinationv1.CoordinatedLeaseStrategy(DefaultRevision))}

// coordinating returns a term that has not begun, with a lock and candidates of the election x.
func coordinating(t *testing.T, server *apiserver.Server, spec coordinationv1.LeaseSpec, candidates ...*coordinationv1beta1.LeaseCandidate) *term {
	t.Helper()
	w := newTerm(controllerOf(t, server.Config()), nil)
	w.setLeases([]*coordinationv1.Lease{{ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "n", ResourceVersion: "1"}, Spec: spec}})
	for i, c := range candidates {
		c.ResourceVersion = fmt.Sprint(2 + i)
	}
	w.setCandidates(candidates)
	return w
}

// Events report each choice, and the strategy or preference that prevented a leader.
func TestReconcile_Events(t *testing.T) {
	at := &metav1.MicroTime{Time: epoch}
	for want, c := range map[string]struct {
		strategy, requested string
		holder, preferred   string
	}{
		"Warning StrategyReplaced: replaced strategy x.y/z, which no candidate requests and which prevented a leader, by " + DefaultRevision: {
			strategy: "x.y/z", requested: DefaultRevision,
		},
		`Warning StrategyUnknown: cannot choose a leader: "x.y/z": strategy is not in the registry of this coordinator`: {
			strategy: "x.y/z", requested: "x.y/z",
		},
		"Normal LeaderNamed: named a.x (" + DefaultRevision + ")": {
			strategy: DefaultRevision, requested: DefaultRevision,
		},
		"Normal LeaderPreferred: prefers a.x to z.x (" + DefaultRevision + ")": {
			strategy: DefaultRevision, requested: DefaultRevision, holder: "z.x",
		},
		"Normal PreferenceWithdrawn: no longer prefers ghost.x to a.x (" + DefaultRevision + ")": {
			strategy: DefaultRevision, requested: DefaultRevision, holder: "a.x", preferred: "ghost.x",
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			candidate := candidateOf("a.x")
			candidate.Spec.Strategy = coordinationv1.CoordinatedLeaseStrategy(c.requested)
			server, _ := echo(nil)
			w := coordinating(t, server, coordinationv1.LeaseSpec{
				Strategy: new(coordinationv1.CoordinatedLeaseStrategy(c.strategy)), HolderIdentity: &c.holder, PreferredHolder: &c.preferred,
				LeaseDurationSeconds: new(int32(60)), AcquireTime: at, RenewTime: at,
			}, candidate)
			var got eventLog
			w.cfg.EventRecorder = &got
			for range 2 {
				if _, err := w.reconcile(t.Context(), "x"); err != nil {
					t.Fatal(err)
				}
				time.Sleep(electionDuration)
				answer := metav1.NowMicro()
				candidate = candidate.DeepCopy()
				candidate.ResourceVersion += "1"
				candidate.Spec.PingTime = &answer
				candidate.Spec.RenewTime = &answer
				w.setCandidates([]*coordinationv1beta1.LeaseCandidate{candidate})
			}
			if _, last, _ := strings.Cut(got[len(got)-1], " "); last != want {
				t.Errorf("Events %q, want %q", got, want)
			}
		})
	}
}

// The conflict is logged once and recorded as an Event on the lock and the candidates.
func TestReconcile_StrategiesDisagree(t *testing.T) {
	a, b := candidateOf("a.x"), candidateOf("b.x")
	b.Spec.Strategy = "example.com/Other"
	w := coordinating(t, apiserver.New(), coordinatedSpec, a, b)
	var log bytes.Buffer
	var got eventLog
	w.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	w.cfg.EventRecorder = &got
	reconcile := func() {
		if _, err := w.reconcile(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
	}
	reconcile()
	reconcile()
	slices.Sort(got)
	for i, object := range []string{"a.x", "b.x", "x"} {
		if len(got) != 3 || !strings.HasPrefix(got[i], object+" Warning StrategiesDisagree: ") || strings.Count(log.String(), "\n") != 1 {
			t.Errorf("Events %q, log:\n%s", got, &log)
		}
	}
	w.setCandidates(nil)
	reconcile()
	if !strings.Contains(log.String(), "problem of the election resolved") {
		t.Errorf("log:\n%s", &log)
	}
}

// While the watch has not delivered a ping, another ping would conflict. It is not sent until the watch delivers a newer version
// or an election duration passes.
func TestReconcile_DelayedWatch(t *testing.T) {
	for _, failure := range []error{nil, apierrors.NewConflict(coordinationv1.Resource("leasecandidates"), "a.x", nil)} {
		synctest.Test(t, func(t *testing.T) {
			server, sent := echo(failure)
			w := coordinating(t, server, coordinatedSpec, candidateOf("a.x"))
			reconcile := func(when string, pings int, again time.Duration) {
				t.Helper()
				got, err := w.reconcile(t.Context(), "x")
				if err != nil || sent["a.x"] != pings || got != again {
					t.Errorf("failure %v, %s: %d pings, want %d; again after %v, want %v (%v)", failure, when, sent["a.x"], pings, got, again, err)
				}
			}
			reconcile("first", 1, 0)
			reconcile("other event", 1, electionDuration)
			time.Sleep(electionDuration - time.Second)
			reconcile("later event", 1, time.Second)
			time.Sleep(time.Second)
			reconcile("watch silent", 2, 0)
			newer := candidateOf("a.x")
			newer.ResourceVersion = "3"
			w.setCandidates([]*coordinationv1beta1.LeaseCandidate{newer})
			reconcile("newer version", 3, 0)
		})
	}
}

// A candidate may answer while the coordinator deletes its object. So the deletion applies only to the version that did not answer.
func TestReconcile_DeletesOneVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		candidate := candidateOf("a.x")
		candidate.UID = "u"
		candidate.Spec.PingTime = new(metav1.NowMicro())
		server := apiserver.New()
		w := coordinating(t, server, coordinatedSpec, candidate)
		for range 2 {
			if _, err := w.reconcile(t.Context(), "x"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(candidateDuration)
		}
		var deletions []string
		for _, r := range server.Requests() {
			if r.Verb == "delete" {
				preconditions, _ := r.Body["preconditions"].(map[string]any)
				deletions = append(deletions, fmt.Sprint(r.Name, preconditions["uid"], preconditions["resourceVersion"]))
			}
		}
		if want := "a.xu2"; len(deletions) != 1 || deletions[0] != want {
			t.Errorf("deletions %q, want %q", deletions, want)
		}
	})
}
