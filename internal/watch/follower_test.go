package watch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// scripted is a Follower with one open function for each connection. The last function repeats.
type scripted struct {
	Follower
	t      *testing.T
	began  time.Time
	script []func(context.Context) (apiwatch.Interface, error)
	opened []metav1.ListOptions
	at     []time.Duration

	mu  sync.Mutex
	log []string
}

// logs adds a line to the log.
func (s *scripted) logs(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

func scriptedFollower(t *testing.T, script ...func(context.Context) (apiwatch.Interface, error)) *scripted {
	s := &scripted{t: t, script: script, began: time.Now()}
	s.LongestPause = 10 * time.Second
	s.Watch = func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
		s.opened = append(s.opened, options)
		s.at = append(s.at, time.Since(s.began))
		return s.script[min(len(s.opened), len(s.script))-1](ctx)
	}
	s.Connected = func(_ context.Context, gap bool) error {
		s.logs("%s", map[bool]string{true: "up after a gap", false: "up"}[gap])
		return nil
	}
	s.Event = func(_ context.Context, kind apiwatch.EventType, o Object) error {
		s.logs("%s %s@%s", kind, o.GetName(), o.GetResourceVersion())
		return nil
	}
	s.Ended = func(end End) bool {
		s.logs("end accepted %v resumes %v: %v", end.Accepted, end.Resumes, end.Err)
		return true
	}
	return s
}

// run starts the Follower. stop ends it.
func (s *scripted) run() (stop func()) {
	stop = harness.Background(s.t, func(ctx context.Context) error { s.Run(ctx); return nil })
	synctest.Wait()
	return stop
}

// said returns the calls since the last said.
func (s *scripted) said() []string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

func (s *scripted) want(want ...string) {
	s.t.Helper()
	if got := s.said(); !slices.Equal(got, want) {
		s.t.Errorf("got %q, want %q", got, want)
	}
}

// accepts opens a watch that sends the events and ends after a duration, or never if it is 0.
func accepts(lasts time.Duration, all ...apiwatch.Event) func(context.Context) (apiwatch.Interface, error) {
	return func(context.Context) (apiwatch.Interface, error) {
		if lasts == 0 {
			return events(all...), nil
		}
		return ends(lasts, all...), nil
	}
}

func rejects(err error) func(context.Context) (apiwatch.Interface, error) {
	return func(context.Context) (apiwatch.Interface, error) { return nil, err }
}

func TestFollower_Events(t *testing.T) {
	gone := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusGone, Reason: metav1.StatusReasonGone, Message: "was compacted"}
	mine := event(apiwatch.Added, "a", "11")
	for name, test := range map[string]struct {
		events []apiwatch.Event
		seen   int
		resume string // of the next watch
		err    string // part of the error; "" is an ordinary end
	}{
		"one change":                {[]apiwatch.Event{mine}, 1, "11", ""},
		"nothing":                   {nil, 0, "10", ""},
		"deletion":                  {[]apiwatch.Event{event(apiwatch.Deleted, "a", "12")}, 1, "12", ""},
		"bookmark":                  {[]apiwatch.Event{mine, event(apiwatch.Bookmark, "", "15")}, 1, "15", ""},
		"bookmark without version":  {[]apiwatch.Event{mine, event(apiwatch.Bookmark, "", "")}, 1, "11", ""},
		"without version":           {[]apiwatch.Event{event(apiwatch.Added, "a", "")}, 1, "10", ""},
		"in any order":              {[]apiwatch.Event{mine, event(apiwatch.Added, "b", "9")}, 2, "11", ""},
		"expired":                   {[]apiwatch.Event{mine, failure(apierrors.NewResourceExpired("too old"))}, 1, "", "too old"},
		"gone":                      {[]apiwatch.Event{{Type: apiwatch.Error, Object: &gone}, mine}, 0, "", "was compacted"},
		"error of the server":       {[]apiwatch.Event{mine, failure(refused)}, 1, "11", "Internal error"},
		"error without a status":    {[]apiwatch.Event{{Type: apiwatch.Error}}, 0, "10", "unexpected object"},
		"what is no object":         {[]apiwatch.Event{{Type: apiwatch.Added, Object: &metav1.Status{}}}, 0, "10", "Status"},
		"no object":                 {[]apiwatch.Event{{Type: apiwatch.Added}}, 0, "10", "nil"},
		"unknown type":              {[]apiwatch.Event{{Type: "RENAMED", Object: &corev1.ConfigMap{}}}, 0, "10", "RENAMED"},
		"an error of the receiver":  {[]apiwatch.Event{event(apiwatch.Added, "bad", "12"), mine}, 1, "10", "bad object"},
		"an error of the connected": {[]apiwatch.Event{mine}, 0, "10", "bad connection"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen, ups := 0, 0
				s := scriptedFollower(t, accepts(ShortWatch, event(apiwatch.Bookmark, "", "10")), accepts(ShortWatch, test.events...), accepts(0))
				s.Connected = func(context.Context, bool) error {
					if ups++; ups == 2 && test.err == "bad connection" {
						return errors.New(test.err)
					}
					return nil
				}
				s.Event = func(_ context.Context, _ apiwatch.EventType, o Object) error {
					if seen++; o.GetName() == "bad" {
						return errors.New("bad object")
					}
					return nil
				}
				var ended End
				s.Ended = func(end End) bool { ended = end; return true }
				stop := s.run()
				<-time.After(time.Minute)
				stop()
				if len(s.opened) != 3 || s.opened[1].ResourceVersion != "10" || s.opened[2].ResourceVersion != test.resume {
					t.Errorf("watched from %+v, want %q at last", s.opened, test.resume)
				}
				if text := fmt.Sprint(ended.Err); seen != test.seen || !ended.Accepted || (ended.Err == nil) != (test.err == "") || !strings.Contains(text, test.err) {
					t.Errorf("%d seen, end %+v; want %d, error %q", seen, ended, test.seen, test.err)
				}
			})
		})
	}
}

func TestFollower_Gaps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scriptedFollower(t,
			rejects(refused),
			accepts(ShortWatch, event(apiwatch.Added, "a", "7")),
			accepts(ShortWatch-time.Millisecond, event(apiwatch.Added, "a", "8")),
			rejects(apierrors.NewResourceExpired("old")),
			accepts(0))
		stop := s.run()
		defer stop()
		s.want("end accepted false resumes false: " + refused.Error())
		<-time.After(2 * FirstPause)
		s.want("up after a gap", "ADDED a@7")
		<-time.After(ShortWatch)
		s.want("end accepted true resumes true: <nil>", "up", "ADDED a@8")
		<-time.After(2 * ShortWatch)
		s.want("end accepted true resumes false: <nil>", "end accepted false resumes false: old", "up after a gap")
		var from []string
		for _, o := range s.opened {
			from = append(from, o.ResourceVersion)
		}
		if !slices.Equal(from, []string{"", "", "7", "8", ""}) {
			t.Errorf("watched from %q", from)
		}
	})
}

func TestFollower_Restart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scriptedFollower(t, accepts(0, event(apiwatch.Added, "a", "1000")), accepts(0), accepts(time.Millisecond, event(apiwatch.Added, "a", "500")), accepts(0))
		s.Restart() // before there is a connection
		stop := s.run()
		defer stop()
		s.want("up after a gap", "ADDED a@1000")
		s.Restart()
		s.want("end accepted true resumes false: <nil>", "up after a gap")
		s.Restart()
		<-time.After(2 * time.Millisecond)
		s.want("end accepted true resumes false: <nil>", "up after a gap", "ADDED a@500", "end accepted true resumes false: <nil>")
		s.Restart() // between two
		<-time.After(time.Minute)
		s.want("up after a gap")
		if len(s.opened) != 4 || s.opened[3].ResourceVersion != "" {
			t.Errorf("watched %+v", s.opened)
		}
	})
	// A restart while a watch is opened is not reported as its error.
	synctest.Test(t, func(t *testing.T) {
		s := scriptedFollower(t, func(ctx context.Context) (apiwatch.Interface, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, accepts(0))
		stop := s.run()
		defer stop()
		s.Restart()
		s.want("end accepted false resumes false: <nil>", "up after a gap")
	})
}

func TestFollower_Pauses(t *testing.T) {
	nothing := accepts(time.Millisecond)
	good := accepts(ShortWatch, event(apiwatch.Added, "a", "7"))
	broken := accepts(ShortWatch+time.Millisecond, event(apiwatch.Added, "a", "7"))
	failing := func(context.Context) (apiwatch.Interface, error) {
		w := apiwatch.NewFakeWithChanSize(1, false)
		time.AfterFunc(ShortWatch+time.Millisecond, func() { w.Action(apiwatch.Error, &refused.ErrStatus) })
		return w, nil
	}
	for name, c := range map[string]struct {
		script []func(context.Context) (apiwatch.Interface, error)
		full   []time.Duration // each pause is from the half to one and a half of one
	}{
		"short": {slices.Repeat([]func(context.Context) (apiwatch.Interface, error){nothing}, 9), []time.Duration{
			FirstPause, 2 * FirstPause, 4 * FirstPause, 8 * FirstPause, 16 * FirstPause, 32 * FirstPause, 10 * time.Second, 10 * time.Second, 10 * time.Second,
		}},
		"some last": {[]func(context.Context) (apiwatch.Interface, error){nothing, nothing, good, nothing, nothing, rejects(refused), broken, nothing},
			[]time.Duration{FirstPause, 2 * FirstPause, 0, FirstPause, 2 * FirstPause, 4 * FirstPause, 0, FirstPause}},
		"error after a while": {[]func(context.Context) (apiwatch.Interface, error){nothing, nothing, failing, nothing}, []time.Duration{FirstPause, 2 * FirstPause, FirstPause, 2 * FirstPause}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := scriptedFollower(t, append(c.script, accepts(0))...)
				var ended []time.Duration
				s.Ended = func(End) bool {
					ended = append(ended, time.Since(s.began))
					return true
				}
				stop := s.run()
				<-time.After(time.Hour)
				stop()
				if len(s.at) != len(c.full)+1 {
					t.Fatalf("%d watches", len(s.at))
				}
				for i, full := range c.full {
					if got := s.at[i+1] - ended[i]; got < full/2 || got > full*3/2 {
						t.Errorf("pause %d is %v, want the half to one and a half of %v", i+1, got, full)
					}
				}
			})
		})
	}
}

func TestFollower_Options(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scriptedFollower(t, rejects(refused))
		s.Selection = ByName("a")
		stop := s.run()
		<-time.After(20 * 10 * time.Second)
		stop()
		limits := map[int64]bool{}
		for _, got := range s.opened {
			limit := time.Duration(*got.TimeoutSeconds) * time.Second
			if got.FieldSelector != "metadata.name=a" || !got.AllowWatchBookmarks || limit < MinWatch || limit > MaxWatch {
				t.Fatalf("%+v, limit %v", got, limit)
			}
			limits[*got.TimeoutSeconds] = true
		}
		if len(limits) < 2 {
			t.Error("all watches have the same limit, so they reconnect together")
		}
	})
}

// A watch must be accepted within requestTimeout. The time limit does not end an accepted watch.
func TestFollower_AcceptLimit(t *testing.T) {
	opens := func(takes time.Duration, ignores bool, opened *apiwatch.FakeWatcher) func(context.Context) (apiwatch.Interface, error) {
		return func(ctx context.Context) (apiwatch.Interface, error) {
			done := ctx.Done()
			if ignores {
				done = nil
			}
			select {
			case <-time.After(takes):
				return opened, nil
			case <-done:
				return nil, ctx.Err()
			}
		}
	}
	for name, c := range map[string]struct {
		takes   time.Duration
		ignores bool
		ok      bool
	}{
		"in time":              {requestTimeout - time.Millisecond, false, true},
		"too late":             {requestTimeout + time.Minute, false, false},
		"too late, but opened": {requestTimeout + time.Minute, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := apiwatch.NewFake()
				s := scriptedFollower(t, opens(c.takes, c.ignores, w), accepts(0))
				var ended End
				s.Ended = func(end End) bool { ended = end; return true }
				stop := s.run()
				<-time.After(3 * (requestTimeout + time.Minute))
				synctest.Wait()
				if c.ok != (len(s.opened) == 1) || !c.ok && (!errors.Is(ended.Err, context.DeadlineExceeded) || ended.Accepted) {
					t.Errorf("%d watches, end %+v", len(s.opened), ended)
				}
				if !c.ok && !c.ignores && s.at[1] > requestTimeout+2*FirstPause {
					t.Errorf("the next watch starts after %v", s.at[1])
				}
				stop()
				if (c.ok || c.ignores) && !w.IsStopped() {
					t.Error("the watch continues")
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s := scriptedFollower(t, func(context.Context) (apiwatch.Interface, error) { return apiwatch.NewEmptyWatch(), nil })
		stop := s.run()
		s.want("end accepted false resumes false: " + ErrNotAccepted.Error())
		stop()
	})
}

// After the end of the context no event is passed, although a select chooses at random.
func TestFollower_ContextDone(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			s := scriptedFollower(t, accepts(0, event(apiwatch.Added, "a", "11"), event(apiwatch.Modified, "a", "12")))
			seen := 0
			ctx, cancel := context.WithCancel(t.Context())
			s.Event = func(context.Context, apiwatch.EventType, Object) error {
				seen++
				cancel()
				return nil
			}
			if s.Run(ctx); seen != 1 || len(s.log) != 1 {
				t.Fatalf("%d seen, %q", seen, s.log)
			}
		})
	}
}

func TestFollower_EndedStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := scriptedFollower(t, rejects(refused))
		s.Ended = func(End) bool { return false }
		began := time.Now()
		if s.Run(t.Context()); len(s.opened) != 1 || time.Since(began) != 0 {
			t.Errorf("%d watches in %v", len(s.opened), time.Since(began))
		}
	})
}
