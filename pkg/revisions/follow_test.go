package revisions

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
)

// backsOff checks that waits double from the first to the last, each within its jitter.
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

func TestRetriesBackOff(t *testing.T) {
	refused := apierrors.NewInternalError(errors.New("no"))
	forbidden := apierrors.NewForbidden(hooksResource, "a", errors.New("no"))
	for name, test := range map[string]struct {
		s     script
		verb  string
		times [2]int // bounds, within ten minutes
		// problem is what it reports in the end, "" for none.
		problem string
	}{
		"a list that fails": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, refused },
		}, "list", [2]int{55, 75}, "list: Internal error"},
		"a watch that is not accepted": {script{
			list:  func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return nil, refused },
		}, "watch", [2]int{55, 75}, "watch: Internal error"},
		"a watch that ends at once": {script{
			list:  func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return ends(0), nil },
		}, "watch", [2]int{55, 75}, ""},
		"a watch that begins with an error": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return events(failure(refused)), nil
			},
		}, "list", [2]int{55, 75}, ""},
		"a watch whose version has expired": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return nil, apierrors.NewResourceExpired("old")
			},
		}, "list", [2]int{55, 75}, ""},
		"a watch that shows something else": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return events(watch.Event{Type: watch.Added, Object: &metav1.Status{}}), nil
			},
		}, "list", [2]int{55, 75}, ""},
		"a get that fails": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, forbidden },
			get:  func(int) (*webhook, error) { return nil, refused },
		}, "get", [2]int{55, 75}, "list: mutatingwebhookconfigurations"},
		"a watch whose version is gone": {script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return nil, apierrors.NewGone("old")
			},
		}, "list", [2]int{55, 75}, ""},
		"a list of all that a label selects": {script{
			label: tagLabel,
			list:  func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, refused },
		}, "list", [2]int{55, 75}, "list: Internal error"},
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
		}, "list", [2]int{55, 75}, "get: Internal error"},
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

// What is forbidden is tried at the pace of polls, and does not lengthen other waits.
func TestForbiddenVerbsArePolled(t *testing.T) {
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
				problem := follow(t, &s, new(heard), 10*time.Minute)
				if (problem == nil) != (test.problem == "") || problem != nil && !strings.Contains(problem.Error(), test.problem) {
					t.Errorf("it reports %v, want %q", problem, test.problem)
				}
				for i, wait := range s.tries("list") {
					if wait < 2500*time.Millisecond || wait > 7500*time.Millisecond {
						t.Errorf("poll %d after %v", i, wait)
					}
				}
				if got := s.count("list"); got < 100 || got > 140 {
					t.Errorf("%d polls in ten minutes", got)
				}
				if gets := s.count("get") > 0; gets != test.gets {
					t.Errorf("%d gets", s.count("get"))
				}
			})
		})
	}
}

// Once it may list again, nothing is reported of the get that it does without.
func TestATroubleEndsWithItsCause(t *testing.T) {
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
	// That there is none is an answer.
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

// After a watch that lasted the waits begin anew.
func TestBackOffIsReset(t *testing.T) {
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
			after := (i + 1) * (failures + 1) // the first watch after the good one
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

// A read and the acceptance of a watch have a deadline.
func TestRequestsThatAreNotAnsweredAreGivenUp(t *testing.T) {
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
				// 10 s for an answer and 10 s of waiting, with what comes before that.
				if got := s.count("list"); got < 25 || got > 40 {
					t.Errorf("%d tries in ten minutes", got)
				}
			})
		})
	}
}

// Every watch begins where a read of just now ended, whatever became of the one before: also
// where a store that was put back has versions that are smaller than before.
func TestEachWatchFollowsARead(t *testing.T) {
	for name, test := range map[string]func() watch.Interface{
		"after the server's ordinary end": func() watch.Interface { return ends(6 * time.Minute) },
		"after an error event":            func() watch.Interface { return events(failure(apierrors.NewInternalError(errors.New("no")))) },
		"after an expired version":        func() watch.Interface { return events(failure(apierrors.NewResourceExpired("old"))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h heard
				s := script{
					list: func(n int) (*admissionv1.MutatingWebhookConfigurationList, error) {
						version := fmt.Sprint(100 - n)
						return listed(version, hook("a", version), hook("b", "7"))
					},
					watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) { return test(), nil },
				}
				follow(t, &s, &h, 20*time.Minute)
				if s.count("watch") < 3 || s.count("list") != s.count("watch") {
					t.Fatalf("%d watches, %d lists", s.count("watch"), s.count("list"))
				}
				for _, wait := range s.tries("watch") {
					if lasts := 6 * time.Minute; name == "after the server's ordinary end" && wait < lasts+firstRetry/2 {
						t.Errorf("the next watch comes %v after the last one's end", wait-lasts)
					}
				}
				n := 0
				for _, c := range s.calls {
					if c.verb != "watch" {
						continue
					}
					if want := fmt.Sprint(100 - n); c.from != want {
						t.Errorf("watch %d is from version %q, want %q", n, c.from, want)
					}
					if want := "all: a@" + c.from; h.count(want) != 1 {
						t.Errorf("told %q %d times: %q", want, h.count(want), h)
					}
					n++
				}
			})
		})
	}
}

// Events in their order, of the one object, and no word of bookmarks.
func TestEventsAreHandedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		s := script{
			list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return listed("5") },
			watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
				return events(event(watch.Added, "a", "6"), event(watch.Modified, "b", "7"), event(watch.Modified, "a", "8"),
					event(watch.Bookmark, "", "9"), event(watch.Deleted, "a", "10"), event(watch.Added, "a", "11")), nil
			},
		}
		follow(t, &s, &h, time.Minute)
		if want := []string{"all:", "set a@6", "set a@8", "remove a", "set a@11"}; !slices.Equal(h, want) {
			t.Errorf("told %q, want %q", h, want)
		}
	})
}

// Without list, a watch begins with what is there; a get that is sent once it is accepted
// shows what went in between, and what the watch then shows of before that is old.
func TestWithoutListNothingIsMissedAndNothingOldIsTold(t *testing.T) {
	forbidden := apierrors.NewForbidden(hooksResource, "a", errors.New("no"))
	one := func(version string) (*webhook, error) { item := hook("a", version); return &item, nil }
	gone := func() (*webhook, error) { return nil, apierrors.NewNotFound(hooksResource, "a") }
	for name, test := range map[string]struct {
		get  func(n int) (*webhook, error)
		show []watch.Event
		want []string
	}{
		"deleted in between": {
			get: func(n int) (*webhook, error) {
				if n == 0 {
					return one("5")
				}
				return gone()
			},
			want: []string{"all: a@5", "all:"},
		},
		"changed in between": {
			get: func(n int) (*webhook, error) { return one(fmt.Sprint(5 + 4*n)) },
			show: []watch.Event{
				event(watch.Added, "a", "5"), event(watch.Modified, "a", "7"), event(watch.Modified, "a", "9"), event(watch.Modified, "a", "10"),
			},
			want: []string{"all: a@5", "all: a@9", "set a@9", "set a@10"},
		},
		"deleted and made anew in between": {
			get:  func(n int) (*webhook, error) { return one(fmt.Sprint(5 + 4*n)) },
			show: []watch.Event{event(watch.Deleted, "a", "8"), event(watch.Added, "a", "9")},
			want: []string{"all: a@5", "all: a@9", "set a@9"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h heard
				s := script{
					list: func(int) (*admissionv1.MutatingWebhookConfigurationList, error) { return nil, forbidden },
					get:  test.get,
					watch: func(context.Context, int, metav1.ListOptions) (watch.Interface, error) {
						return events(test.show...), nil
					},
				}
				follow(t, &s, &h, time.Minute)
				if !slices.Equal(h, test.want) {
					t.Errorf("told %q, want %q", h, test.want)
				}
			})
		})
	}
}

// A tag lasts no longer than its label, the webhook's other label, or the webhook.
func TestATagEndsWithItsLabel(t *testing.T) {
	for name, change := range map[string]func(*tagWatcher){
		"with its webhook":     func(w *tagWatcher) { w.sink().remove("a") },
		"while nobody watched": func(w *tagWatcher) { w.sink().replace([]webhook{tagHook("b", "test", "stable")}) },
		"without the tag's label": func(w *tagWatcher) {
			w.sink().set(webhook{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{revisionLabel: "stable"}}})
		},
		"without the revision's label": func(w *tagWatcher) {
			w.sink().set(webhook{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{tagLabel: "prod"}}})
		},
		"with another tag":         func(w *tagWatcher) { w.sink().set(tagHook("a", "other", "stable")) },
		"of another revision":      func(w *tagWatcher) { w.sink().set(tagHook("a", "prod", "canary")) },
		"of another control plane": func(w *tagWatcher) { w.sink().set(tagHook("a", "prod", "stable", "elsewhere")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := NewTags(nil, Config{Revision: "stable", Logger: quiet}).(*tagWatcher)
			w.take(tagHook("a", "prod", "stable"))
			w.post()
			if !w.GetMyTags().Has("prod") {
				t.Fatal("the tag is not known")
			}
			change(w)
			if w.GetMyTags().Has("prod") {
				t.Error("the tag is still there")
			}
		})
	}
}

// A handler may do with its set what it likes.
func TestTagHandlersHaveASetOfTheirOwn(t *testing.T) {
	w := NewTags(nil, Config{Revision: "stable", Logger: quiet}).(*tagWatcher)
	w.AddHandler(func(tags sets.Set[string]) { tags.Insert("changed by a handler") })
	w.post()
	d, _ := w.board.next()
	for _, handler := range d.to {
		handler(d.value)
	}
	if len(d.to) != 1 || w.GetMyTags().Has("changed by a handler") {
		t.Errorf("%d handlers; tags %v", len(d.to), w.GetMyTags())
	}
}

// What selects by label hears of every name, and of no bookmark.
func TestEventsByLabel(t *testing.T) {
	var h heard
	f := follower{label: tagLabel, to: h.sink()}
	for _, e := range []watch.Event{event(watch.Added, "a", "6"), event(watch.Bookmark, "", "9"), event(watch.Modified, "b", "10")} {
		f.hand(e.Type, e.Object.(*webhook))
	}
	if want := []string{"set a@6", "set b@10"}; !slices.Equal(h, want) {
		t.Errorf("told %q, want %q", h, want)
	}
}
