package watch

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apiwatch "k8s.io/apimachinery/pkg/watch"
)

func TestObjects_ReadsBeforeWatch(t *testing.T) {
	for name, test := range map[string]func() *apiwatch.FakeWatcher{
		"after the server's ordinary end": func() *apiwatch.FakeWatcher { return ends(6 * time.Minute) },
		"after an error event":            func() *apiwatch.FakeWatcher { return events(failure(refused)) },
		"after an expired version":        func() *apiwatch.FakeWatcher { return events(failure(apierrors.NewResourceExpired("old"))) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h heard
				s := script{
					list: func(n int) (*hookList, error) {
						version := fmt.Sprint(100 - n)
						return listed(version, hook("a", version), hook("b", "7"))
					},
					watch: opens(test),
				}
				follow(t, &s, &h, 20*time.Minute)
				if s.count("watch") < 3 || s.count("list") != s.count("watch") {
					t.Fatalf("%d watches, %d lists", s.count("watch"), s.count("list"))
				}
				for _, wait := range s.tries("watch") {
					if lasts := 6 * time.Minute; name == "after the server's ordinary end" && wait < lasts+FirstPause/2 {
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

func TestObjects_Events(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h heard
		s := script{
			list: lists("5"),
			watch: opens(func() *apiwatch.FakeWatcher {
				return events(event(apiwatch.Added, "a", "6"), event(apiwatch.Modified, "b", "7"), event(apiwatch.Modified, "a", "8"),
					event(apiwatch.Bookmark, "", "9"), event(apiwatch.Deleted, "a", "10"), event(apiwatch.Added, "a", "11"))
			}),
		}
		follow(t, &s, &h, time.Minute)
		if want := []string{"all:", "all: a@6", "all: a@8", "all:", "all: a@11"}; !slices.Equal(h, want) {
			t.Errorf("told %q, want %q", h, want)
		}
	})
}

func TestObjects_WithoutList(t *testing.T) {
	for name, test := range map[string]struct {
		get  func(n int) (*webhook, error)
		show []apiwatch.Event
		want []string
	}{
		"deleted in between": {
			get: func(n int) (*webhook, error) {
				if n == 0 {
					return finds("5")(n)
				}
				return nil, apierrors.NewNotFound(hooksResource, "a")
			},
			want: []string{"all: a@5", "all:"},
		},
		"changed in between": {
			get: func(n int) (*webhook, error) { return finds(fmt.Sprint(5 + 4*n))(n) },
			show: []apiwatch.Event{
				event(apiwatch.Added, "a", "5"), event(apiwatch.Modified, "a", "7"), event(apiwatch.Modified, "a", "9"), event(apiwatch.Modified, "a", "10"),
			},
			want: []string{"all: a@5", "all: a@9", "all: a@10"},
		},
		"recreated between the requests": {
			get:  func(n int) (*webhook, error) { return finds(fmt.Sprint(5 + 4*n))(n) },
			show: []apiwatch.Event{event(apiwatch.Deleted, "a", "8"), event(apiwatch.Added, "a", "9")},
			want: []string{"all: a@5", "all: a@9"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h heard
				s := script{
					list: fails[hookList](forbidden), get: test.get,
					watch: opens(func() *apiwatch.FakeWatcher { return events(test.show...) }),
				}
				follow(t, &s, &h, time.Minute)
				if !slices.Equal(h, test.want) {
					t.Errorf("told %q, want %q", h, test.want)
				}
			})
		})
	}
}

func TestOlder(t *testing.T) {
	for _, pair := range [][2]string{{"9", "10"}, {"1", "2"}, {"99999999999999999999", "100000000000000000000"}} {
		if !Older(pair[0], pair[1]) || Older(pair[1], pair[0]) || Older(pair[0], pair[0]) {
			t.Errorf("%s and %s", pair[0], pair[1])
		}
		if IsNews(pair[0], pair[1]) || !IsNews(pair[1], pair[0]) || IsNews(pair[0], pair[0]) {
			t.Errorf("news: %s and %s", pair[0], pair[1])
		}
	}
	for _, none := range []string{"", "a", "-1", "01"} {
		if Older(none, "5") || Older("5", none) {
			t.Errorf("%q is compared", none)
		}
		if !IsNews(none, "5") || !IsNews("5", none) || !IsNews(none, none) {
			t.Errorf("%q is no news", none)
		}
	}
}
