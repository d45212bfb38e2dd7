package revisions

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// backsOff checks that the pauses double from first to last, within the jitter.
func backsOff(t *testing.T, waits []time.Duration) {
	t.Helper()
	want := firstRetry
	for i, wait := range waits {
		if wait < want/2 || wait > want*3/2 {
			t.Errorf("wait %d is %v, want %v and its jitter", i, wait, want)
		}
		want = min(2*want, lastRetry)
	}
	if want != lastRetry {
		t.Errorf("after %d waits the longest has not come", len(waits))
	}
}

func TestReflector_BackOff(t *testing.T) {
	refused := apierrors.NewInternalError(errors.New("no"))
	forbidden := apierrors.NewForbidden(hooksResource, "a", errors.New("no"))
	for name, test := range map[string]struct {
		s     script
		verb  string
		times [2]int // bounds in ten minutes
		// problem is the text of the last Problem, or "".
		problem string
	}{
		"a list that fails": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, refused },
		}, "list", [2]int{270, 340}, "list: Internal error"},
		"a watch that is not accepted": {script{
			list:  func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return nil, refused },
		}, "watch", [2]int{270, 340}, "watch: Internal error"},
		"a watch that ends immediately": {script{
			list:  func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return ends(0), nil },
		}, "watch", [2]int{270, 340}, ""},
		"a watch that begins with an error": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return events(failure(refused)), nil
			},
		}, "list", [2]int{270, 340}, ""},
		"a watch whose version has expired": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return nil, apierrors.NewResourceExpired("old")
			},
		}, "list", [2]int{270, 340}, ""},
		"a watch that shows something else": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return events(watch.Event{Type: watch.Added, Object: &metav1.Status{}}), nil
			},
		}, "list", [2]int{270, 340}, ""},
		"a get that fails": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, forbidden },
			get:  func(int) (*webhook, error) { return nil, refused },
		}, "get", [2]int{270, 340}, "list: mutatingwebhookconfigurations"},
		"a second get that fails": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, forbidden },
			get: func(n int) (*webhook, error) {
				if item := hook("a", "5"); n%2 == 0 {
					return &item, nil
				}
				return nil, refused
			},
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return ends(2 * time.Hour), nil
			},
		}, "list", [2]int{270, 340}, "get: Internal error"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := test.s
				problem := follow(t, &s, new(heard), 10*time.Minute)
				if (problem == nil) != (test.problem == "") || problem != nil && !strings.Contains(problem.Error(), test.problem) {
					t.Errorf("it reports %v, want %q", problem, test.problem)
				}
				if got := s.count(test.verb); got < test.times[0] || got > test.times[1] {
					t.Errorf("%d tries in ten minutes, want %v", got, test.times)
				}
				backsOff(t, s.tries(test.verb))
			})
		})
	}
}

// firstTries is the number of attempts of a forbidden request before polling starts.
const firstTries = 4

func TestReflector_ForbiddenVerbs(t *testing.T) {
	forbidden := apierrors.NewForbidden(hooksResource, "a", errors.New("no"))
	one := func() (*webhook, error) { item := hook("a", "5"); return &item, nil }
	good := func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5", hook("a", "5")) }
	bad := func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, forbidden }
	for name, test := range map[string]struct {
		s       script
		gets    bool
		problem string
	}{
		"watch": {script{
			list:  good,
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return nil, forbidden },
		}, false, "watch: "},
		"watch, once it was accepted": {script{
			list: good,
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return events(failure(forbidden)), nil
			},
		}, false, ""},
		"list of all": {script{label: tagLabel, list: bad}, false, "list: "},
		"list and get": {script{
			list: bad,
			get:  func(int) (*webhook, error) { return nil, forbidden },
		}, true, "get: "},
		"list and watch": {script{
			list:  bad,
			get:   func(int) (*webhook, error) { return one() },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return nil, forbidden },
		}, true, "watch: "},
		"list, and get in the end": {script{
			list: bad,
			get: func(n int) (*webhook, error) {
				if n%2 == 0 {
					return one()
				}
				return nil, forbidden
			},
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return events(), nil },
		}, true, "get: "},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := test.s
				var h heard
				problem := follow(t, &s, &h, 10*time.Minute)
				if unknown := name == "list of all" || name == "list and get"; unknown != (len(h) == 0) {
					t.Errorf("the sink received %q", h)
				}
				if (problem == nil) != (test.problem == "") || problem != nil && !strings.Contains(problem.Error(), test.problem) {
					t.Errorf("it reports %v, want %q", problem, test.problem)
				}
				for i, wait := range s.tries("list") {
					// The server may have just started and not have read its roles.
					if quick := i < firstTries; !quick && (wait < 2500*time.Millisecond || wait > 7500*time.Millisecond) || quick && wait > 2*lastRetry {
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

func TestReflector_TroubleEnds(t *testing.T) {
	refused := apierrors.NewInternalError(errors.New("no"))
	forbidden := apierrors.NewForbidden(hooksResource, "a", errors.New("no"))
	synctest.Test(t, func(t *testing.T) {
		s := script{
			list: func(n int) (*admissionv1.MutatingWebhookConfigurationList, error) {
				if n < 3 {
					return nil, forbidden
				}
				return listed("5")
			},
			get:   func(int) (*webhook, error) { return nil, refused },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return events(), nil },
		}
		if problem := follow(t, &s, new(heard), time.Minute); problem != nil || s.count("get") != 3 {
			t.Errorf("after %d gets it reports %v", s.count("get"), problem)
		}
	})
	// An absent object is a valid result.
	synctest.Test(t, func(t *testing.T) {
		var h heard
		s := script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, forbidden },
			get: func(n int) (*webhook, error) {
				if n == 0 {
					return nil, refused
				}
				return nil, apierrors.NewNotFound(hooksResource, "a")
			},
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return events(), nil },
		}
		problem := follow(t, &s, &h, time.Minute)
		if problem == nil || strings.Contains(problem.Error(), "get: ") || !slices.Equal(h, []string{"all:", "all:"}) {
			t.Errorf("it was told %q and reports %v", h, problem)
		}
	})
}

func TestReflector_BackOffReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const failures = 8
		var good []time.Duration
		s := script{list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") }}
		s.watch = func(_ context.Context, n int, _ metav1.ListOptions) (watch.Interface, error) {
			if n%(failures+1) != failures {
				return ends(0), nil
			}
			good = append(good, time.Since(s.began))
			return ends(shortWatch + time.Millisecond), nil
		}
		follow(t, &s, new(heard), 10*time.Minute)
		waits := s.tries("watch")
		for i := range good {
			after := (i + 1) * (failures + 1) // the first watch after the long one
			if after+1 >= len(waits) {
				break
			}
			for j, wait := range []time.Duration{waits[after-1] - shortWatch, waits[after]} {
				if wait > 3*firstRetry/2+10*time.Millisecond {
					t.Errorf("wait %d after good watch %d is %v", j, i, wait)
				}
			}
		}
		if len(good) < 3 {
			t.Errorf("%d good watches", len(good))
		}
	})
}

func TestReflector_Timeouts(t *testing.T) {
	forbidden := apierrors.NewForbidden(hooksResource, "a", errors.New("no"))
	for verb, s := range map[string]*script{
		"list": {},
		"get": {
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, forbidden },
		},
		"watch": {
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(ctx context.Context, _ int, _ metav1.ListOptions) (watch.Interface, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		},
		"watch, accepted too late": {
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(ctx context.Context, _ int, _ metav1.ListOptions) (watch.Interface, error) {
				<-ctx.Done()
				return events(), nil
			},
		},
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
