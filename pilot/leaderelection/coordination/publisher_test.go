package coordination

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/internal/watch"
)

// requests returns the verbs of the requests since the last call.
func requests(s *apiserver.Server) string {
	var verbs []string
	for _, r := range s.Requests() {
		verbs = append(verbs, r.Verb)
	}
	return strings.Join(verbs, " ")
}

// ping writes a pingTime, as a coordinator does. The next updates fail.
func ping(s *apiserver.Server, fails int) {
	s.On(func(r apiserver.Request) apiserver.Fault {
		if r.Verb != "update" || fails == 0 {
			return apiserver.Fault{}
		}
		fails--
		return apiserver.Fault{Err: apierrors.NewInternalError(errors.New("failed by the test"))}
	})
	var o coordinationv1beta1.LeaseCandidate
	s.Get("leasecandidates", "ns", "pod-a.x", &o)
	o.Spec.PingTime = new(metav1.NowMicro())
	s.Put(&o)
}

func runWith(t *testing.T, server *apiserver.Server) (log *harness.Log, end func()) {
	log = &harness.Log{}
	publisher, err := NewPublisher(PublisherConfig{
		CandidateConfig: CandidateConfig{
			BinaryVersion: "1.2.0", EmulationVersion: "1.1.0", Strategy: "a/b", PodUID: "u", Labels: map[string]string{RevisionLabel: "canary"},
		},
		Client: server.Kube(), Namespace: "ns", Lease: "x", Pod: "pod-a", Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	harness.Must(t, err)
	end = harness.Background(t, publisher.Run)
	synctest.Wait()
	return log, end
}

func TestPublisher_Idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New()
		log, end := runWith(t, server)
		if got := requests(server); got != "watch get create" {
			t.Errorf("at start: %s", got)
		}
		<-time.After(24 * time.Hour)
		synctest.Wait()
		if got := strings.ReplaceAll(requests(server), "watch", ""); strings.TrimSpace(got) != "" {
			t.Errorf("in a day: %s", got)
		}
		end()
		if got := requests(server); got != "delete" {
			t.Errorf("at the end: %s", got)
		}
		if log.Count() > 0 {
			t.Errorf("log:\n%s", log.String())
		}
	})
}

func TestPublisher_AnswersPings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New()
		_, end := runWith(t, server)
		read := func() *coordinationv1beta1.LeaseCandidate {
			harness.Pass(time.Second)
			o := &coordinationv1beta1.LeaseCandidate{}
			if !server.Get("leasecandidates", "ns", "pod-a.x", o) {
				return nil
			}
			return o
		}
		o := read()
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "pod-a", UID: "u"}
		if o.Spec.LeaseName != "x" || o.Spec.BinaryVersion != "1.2.0" || o.Spec.EmulationVersion != "1.1.0" || o.Spec.Strategy != "a/b" || o.Spec.RenewTime == nil ||
			o.Labels[RevisionLabel] != "canary" || len(o.OwnerReferences) != 1 || o.OwnerReferences[0] != owner {
			t.Errorf("published: %+v", o)
		}
		// The clock of the coordinator may be wrong.
		for _, ahead := range []time.Duration{time.Microsecond, time.Second, time.Hour, -48 * time.Hour} {
			pinged := o.DeepCopy()
			pinged.Spec.PingTime = new(metav1.NewMicroTime(o.Spec.RenewTime.Add(ahead)))
			pinged.Labels[PriorityLabel] = "7"
			server.Put(pinged)
			o = read()
			if o.Spec.RenewTime.Equal(pinged.Spec.RenewTime) || o.Spec.RenewTime.Before(pinged.Spec.PingTime) || !o.Spec.PingTime.Equal(pinged.Spec.PingTime) || o.Labels[PriorityLabel] != "7" {
				t.Errorf("pinged %v ahead: %+v", ahead, o)
			}
		}
		server.Delete("leasecandidates", "ns", "pod-a.x")
		if again := read(); again == nil || again.UID == o.UID {
			t.Errorf("after a deletion: %+v", again)
		}
		if end(); read() != nil {
			t.Error("it stays after the end")
		}
	})
}

// A failed answer is retried soon, then with pauses.
func TestPublisher_FailedAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New()
		_, end := runWith(t, server)
		<-time.After(time.Minute)
		requests(server)
		ping(server, 1)
		<-time.After(time.Second)
		synctest.Wait()
		if got := requests(server); got != "update watch update" {
			t.Errorf("after a failure: %s", got)
		}
		<-time.After(time.Minute)
		ping(server, 1000)
		synctest.Wait()
		requests(server) // the first
		wantPauses(t, server, "update", watch.FirstPause, retryPeriod)
		end()
	})
}

// wantPauses checks the pauses of the next requests that fail. The first pause doubles up to the longest. Package watch changes each at
// random by up to one half.
func wantPauses(t *testing.T, s *apiserver.Server, verb string, first, longest time.Duration) {
	t.Helper()
	last := time.Now()
	<-time.After(20 * longest)
	failed := slices.DeleteFunc(s.Requests(), func(r apiserver.Request) bool { return r.Verb != verb })
	for n, r := range failed {
		want := min(first<<min(n, 16), longest)
		if pause := r.At.Sub(last); pause < want/2 || pause >= want*3/2 {
			t.Errorf("%s %d follows after %v, want %v", verb, n, pause, want)
		}
		last = r.At
	}
	if time.Since(last) >= longest*3/2 {
		t.Errorf("no %s for %v", verb, time.Since(last))
	}
}

// leftover stores the object of an earlier process. An operator has added a label.
func leftover(s *apiserver.Server, lease string) {
	s.Put(&coordinationv1beta1.LeaseCandidate{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-a.x", UID: "old", Labels: map[string]string{PriorityLabel: "7"}},
		Spec:       coordinationv1beta1.LeaseCandidateSpec{LeaseName: lease, BinaryVersion: "1.0.0", Strategy: "a/b"},
	})
}

// A ping or deletion during the first update is handled without a log message.
func TestPublisher_ConcurrentChanges(t *testing.T) {
	for name, interfere := range map[string]func(*apiserver.Server) error{
		"pinged": func(s *apiserver.Server) error { ping(s, 0); return nil },
		"deleted": func(s *apiserver.Server) error { // the API server creates LeaseCandidates by an update too, but none with a UID
			s.Delete("leasecandidates", "ns", "pod-a.x")
			return apierrors.NewConflict(schema.GroupResource{Resource: "leasecandidates"}, "pod-a.x", errors.New("it is deleted"))
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := apiserver.New()
			leftover(server, "x")
			updates := 0
			server.On(func(r apiserver.Request) apiserver.Fault {
				if r.Verb == "update" {
					updates++
				}
				if r.Verb != "update" || updates > 1 {
					return apiserver.Fault{}
				}
				return apiserver.Fault{Err: interfere(server)}
			})
			log, end := runWith(t, server)
			<-time.After(time.Second)
			var o coordinationv1beta1.LeaseCandidate
			if !server.Get("leasecandidates", "ns", "pod-a.x", &o) || o.Spec.BinaryVersion != "1.2.0" || o.Spec.RenewTime == nil || o.Spec.RenewTime.Before(o.Spec.PingTime) || updates == 0 {
				t.Errorf("%s: after %d updates: %+v", name, updates, o)
			}
			if end(); log.Count() > 0 {
				t.Errorf("%s: log:\n%s", name, log.String())
			}
		})
	}
}

// An object of an earlier process is updated and keeps the labels of operators. An object of another election is replaced.
func TestPublisher_ExistingObject(t *testing.T) {
	for lease, same := range map[string]bool{"x": true, "another": false} {
		synctest.Test(t, func(t *testing.T) {
			server := apiserver.New()
			leftover(server, lease)
			_, end := runWith(t, server)
			defer end()
			<-time.After(time.Second)
			var o coordinationv1beta1.LeaseCandidate
			server.Get("leasecandidates", "ns", "pod-a.x", &o)
			if kept := o.UID == "old" && o.Labels[PriorityLabel] == "7"; kept != same || o.Spec.LeaseName != "x" || o.Spec.BinaryVersion != "1.2.0" || o.Spec.RenewTime == nil {
				t.Errorf("existing object of %s: %+v", lease, o)
			}
		})
	}
}

func TestPublisher_Unserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New()
		server.On(func(r apiserver.Request) apiserver.Fault {
			return apiserver.Fault{Err: apierrors.NewGenericServerResponse(http.StatusNotFound, r.Verb, schema.GroupResource{}, "", "404 page not found", 0, true)}
		})
		log, end := runWith(t, server)
		if got := requests(server); got != "watch" {
			t.Errorf("at start: %s", got)
		}
		wantPauses(t, server, "watch", unservedPeriod, longestUnserved)
		end()
		if !strings.Contains(log.String(), "does not serve LeaseCandidates") || log.Count() != 1 || log.Count("level=INFO") != 1 {
			t.Errorf("log:\n%s", log.String())
		}
	})
}
