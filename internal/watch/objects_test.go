package watch

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

// backsOff checks that the pauses double from first to last, within the jitter.
func backsOff(t *testing.T, waits []time.Duration) {
	t.Helper()
	want := FirstPause
	for i, wait := range waits {
		if wait < want/2 || wait > want*3/2 {
			t.Errorf("wait %d is %v, want %v and its jitter", i, wait, want)
		}
		want = min(2*want, longestPause)
	}
	if want != longestPause {
		t.Errorf("after %d waits the longest has not come", len(waits))
	}
}

func TestObjects_BackOff(t *testing.T) {
	for name, test := range map[string]struct {
		s    script
		verb string
		// problem is the text of the last Problem, or "".
		problem string
	}{
		"a list that fails":            {script{list: fails[hookList](refused)}, "list", "list: Internal error"},
		"a watch that is not accepted": {script{list: lists("5"), watch: refuses(refused)}, "watch", "watch: Internal error"},
		"a get that fails":             {script{list: fails[hookList](forbidden), get: fails[webhook](refused)}, "get", "list: mutatingwebhookconfigurations"},
		"a second get that fails": {script{
			list: fails[hookList](forbidden), get: firstOnly(refused),
			watch: opens(func() *apiwatch.FakeWatcher { return ends(2 * time.Hour) }),
		}, "list", "get: Internal error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := test.s
				problem := follow(t, &s, new(heard), 10*time.Minute)
				if (problem == nil) != (test.problem == "") || problem != nil && !strings.Contains(problem.Error(), test.problem) {
					t.Errorf("it reports %v, want %q", problem, test.problem)
				}
				if got := s.count(test.verb); got < 270 || got > 340 {
					t.Errorf("%d tries in ten minutes", got)
				}
				backsOff(t, s.tries(test.verb))
			})
		})
	}
}

// firstOnly returns the webhook "a" for the first of two gets, and an error for the second.
func firstOnly(err error) func(int) (*webhook, error) {
	return func(n int) (*webhook, error) {
		if n%2 == 0 {
			return finds("5")(n)
		}
		return nil, err
	}
}

// firstTries is the number of attempts of a forbidden request before polling starts.
const firstTries = 4

func TestObjects_ForbiddenVerbs(t *testing.T) {
	good, bad := lists("5", hook("a", "5")), fails[hookList](forbidden)
	for name, test := range map[string]struct {
		s       script
		gets    bool
		problem string
	}{
		"watch": {script{list: good, watch: refuses(forbidden)}, false, "watch: "},
		"watch, once it was accepted": {script{
			list: good, watch: opens(func() *apiwatch.FakeWatcher { return events(failure(forbidden)) }),
		}, false, ""},
		"list of all":              {script{label: "tag", list: bad}, false, "list: "},
		"list and get":             {script{list: bad, get: fails[webhook](forbidden)}, true, "get: "},
		"list and watch":           {script{list: bad, get: finds("5"), watch: refuses(forbidden)}, true, "watch: "},
		"list, and get in the end": {script{list: bad, get: firstOnly(forbidden), watch: opens(quietly)}, true, "get: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := test.s
				var h heard
				problem := follow(t, &s, &h, 10*time.Minute)
				if unknown := name == "list of all" || name == "list and get"; unknown != (len(h) == 0) {
					t.Errorf("it sent %q", h)
				}
				if (problem == nil) != (test.problem == "") || problem != nil && !strings.Contains(problem.Error(), test.problem) {
					t.Errorf("it reports %v, want %q", problem, test.problem)
				}
				for i, wait := range s.tries("list") {
					// The server may have just started and not have read its roles.
					if quick := i < firstTries; !quick && (wait < 2500*time.Millisecond || wait > 7500*time.Millisecond) || quick && wait > 2*longestPause {
						t.Errorf("poll %d after %v", i, wait)
					}
				}
				if got := s.count("list"); got < 100 || got > 150 {
					t.Errorf("%d polls in ten minutes", got)
				}
				if gets := s.count("get") > 0; gets != test.gets {
					t.Errorf("%d gets", s.count("get"))
				}
			})
		})
	}
}

func TestObjects_TroubleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := script{
			list: func(n int) (*hookList, error) {
				if n < 3 {
					return nil, forbidden
				}
				return listed("5")
			},
			get:   fails[webhook](refused),
			watch: opens(quietly),
		}
		if problem := follow(t, &s, new(heard), time.Minute); problem != nil || s.count("get") != 3 {
			t.Errorf("after %d gets it reports %v", s.count("get"), problem)
		}
	})
	// An absent object is a valid result.
	synctest.Test(t, func(t *testing.T) {
		var h heard
		s := script{
			list: fails[hookList](forbidden),
			get: func(n int) (*webhook, error) {
				if n == 0 {
					return nil, refused
				}
				return nil, apierrors.NewNotFound(hooksResource, "a")
			},
			watch: opens(quietly),
		}
		problem := follow(t, &s, &h, time.Minute)
		if problem == nil || strings.Contains(problem.Error(), "get: ") || !slices.Equal(h, []string{"all:", "all:"}) {
			t.Errorf("it was told %q and reports %v", h, problem)
		}
	})
}

func TestObjects_Timeouts(t *testing.T) {
	for verb, s := range map[string]*script{
		"list": {},
		"get":  {list: fails[hookList](forbidden)},
	} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				follow(t, s, new(heard), 10*time.Minute)
				// 10 s timeout and 2 s pause, plus earlier requests
				if got := s.count("list"); got < 45 || got > 56 {
					t.Errorf("%d tries in ten minutes", got)
				}
			})
		})
	}
}
