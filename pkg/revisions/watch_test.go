package revisions

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	admission "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"

	"incumbent.dev/incumbent/pkg/kube"
)

// scripted is a client whose webhooks come from a script.
type scripted struct {
	kube.Client
	kubernetes.Interface
	admission.AdmissionregistrationV1Interface
	script *script
}

func (s scripted) Kube() kubernetes.Interface { return s }

func (s scripted) AdmissionregistrationV1() admission.AdmissionregistrationV1Interface { return s }

func (s scripted) MutatingWebhookConfigurations() admission.MutatingWebhookConfigurationInterface {
	return s.script
}

// runs starts Run of a watcher. end stops it and waits for its return.
func runs(run func(<-chan struct{})) (end func()) {
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		run(stop)
	}()
	return func() {
		close(stop)
		<-ended
	}
}

// shows returns a script whose watch sends the events of a channel.
func shows(t *testing.T, name string, items ...webhook) (*script, chan<- watch.Event) {
	all := make(chan watch.Event)
	return &script{
		t: t, name: name,
		list: lists("5", items...),
		watch: func(ctx context.Context, _ int, _ metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewFake()
			go func() {
				for {
					select {
					case <-ctx.Done():
						return
					case e := <-all:
						w.Action(e.Type, e.Object)
					}
				}
			}()
			return w, nil
		},
	}, all
}

var versions atomic.Int64

// of returns an event with a version that is newer than all before.
func of(kind watch.EventType, item webhook) watch.Event {
	item.ResourceVersion = fmt.Sprint(10 + versions.Add(1))
	return watch.Event{Type: kind, Object: &item}
}

func revisionHook(name, revision string) webhook {
	return webhook{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{revisionLabel: revision}}}
}

func TestDefaultWatcher_FollowsWebhook(t *testing.T) {
	for namespace, name := range map[string]string{"": "istio-revision-tag-default", "mesh": "istio-revision-tag-default-mesh"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, show := shows(t, name, revisionHook("another", "another"), revisionHook(name, "stable"))
				w := NewDefaultWatcher(scripted{script: s}, "stable", namespace)
				var told []string
				w.AddHandler(func(revision string) {
					if revision != w.GetDefault() { // a handler may call the watcher
						t.Errorf("told %q of %q", revision, w.GetDefault())
					}
					told = append(told, revision)
				})
				if w.HasSynced() || w.GetDefault() != "" {
					t.Errorf("before it ran it is synced %v, and the default %q", w.HasSynced(), w.GetDefault())
				}
				end := runs(w.Run)
				synctest.Wait()
				if !w.HasSynced() || w.GetDefault() != "stable" {
					t.Errorf("synced %v, and the default is %q", w.HasSynced(), w.GetDefault())
				}
				for _, e := range []watch.Event{
					of(watch.Modified, revisionHook(name, "canary")), of(watch.Modified, revisionHook(name, "canary")),
					of(watch.Modified, revisionHook("another", "x")), of(watch.Deleted, revisionHook("another", "x")),
					of(watch.Deleted, revisionHook(name, "canary")), of(watch.Added, revisionHook(name, "")),
				} {
					show <- e
					synctest.Wait()
				}
				end()
				if want := []string{"stable", "canary", "", "default"}; !slices.Equal(told, want) {
					t.Errorf("told %q, want %q", told, want)
				}
				if !w.HasSynced() || w.GetDefault() != "default" || w.(Reporter).Problem() != nil {
					t.Errorf("after its end: synced %v, default %q, problem %v", w.HasSynced(), w.GetDefault(), w.(Reporter).Problem())
				}
			})
		})
	}
}

func TestDefaultWatcher_Logs(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		name := "istio-revision-tag-default"
		s, show := shows(t, name, revisionHook(name, "stable"))
		w := NewDefault(scripted{script: s}, Config{Revision: "stable", Logger: slog.New(slog.NewTextHandler(&out, nil))})
		w.AddHandler(nil)
		end := runs(w.Run)
		synctest.Wait()
		w.Run(nil)
		for _, revision := range []string{"stable", "canary", "canary"} {
			show <- of(watch.Modified, revisionHook(name, revision))
			synctest.Wait()
		}
		w.Run(nil)
		end()
		end = runs(w.Run)
		synctest.Wait()
		show <- of(watch.Modified, revisionHook(name, "third"))
		synctest.Wait()
		end()
		if w.GetDefault() != "third" {
			t.Errorf("in its second Run it does not follow: %q", w.GetDefault())
		}
	})
	for line, n := range map[string]int{
		`msg="handler is nil; ignored it" webhook=istio-revision-tag-default`:                                        1,
		`msg="watcher is already running; ignored the second Run"`:                                                   2,
		`msg="default revision changed" webhook=istio-revision-tag-default`:                                          4,
		`msg="default revision changed" webhook=istio-revision-tag-default revision=stable before="" ours=true`:      1,
		`msg="default revision changed" webhook=istio-revision-tag-default revision=canary before=stable ours=false`: 1,
		`msg="default revision changed" webhook=istio-revision-tag-default revision=stable before=canary ours=true`:  1,
	} {
		if got := strings.Count(out.String(), line); got != n {
			t.Errorf("%d times %q, want %d:\n%s", got, line, n, &out)
		}
	}
}

func TestRun_AwaitsHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		name := "istio-revision-tag-default"
		s, _ := shows(t, name, revisionHook(name, "stable"))
		w := NewDefaultWatcher(scripted{script: s}, "", "")
		ended := false
		w.AddHandler(func(string) {
			<-time.After(time.Minute)
			ended = true
		})
		end := runs(w.Run)
		synctest.Wait()
		end()
		if !ended {
			t.Error("Run returned while a handler ran")
		}
	})
}

func TestDefaultWatcher_MissingPermissions(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s := &script{
			t: t, name: DefaultTagWebhook(""), began: time.Now(),
			list: func(n int) (*hookList, error) {
				if n < 5 {
					return nil, forbidden
				}
				return listed("5")
			},
			get:   fails[webhook](forbidden),
			watch: refuses(forbidden),
		}
		w := NewDefault(scripted{script: s}, Config{PollInterval: time.Minute, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		end := runs(w.Run)
		<-time.After(20 * time.Minute)
		if problem := w.(Reporter).Problem(); problem == nil || !strings.Contains(problem.Error(), "watch: ") {
			t.Errorf("problem: %v", problem)
		}
		end()
		if got := s.count["list"]; got < 14 || got > 46 { // every 30 to 90 s, and some at the start
			t.Errorf("%d reads in 20 minutes", got)
		}
	})
	for verb, instead := range map[string]string{
		"list": "reading it with get", "get": "keeping the default revision that was read last, if any", "watch": "reading it every 1m0s",
	} {
		if n := strings.Count(out.String(), fmt.Sprintf(`msg="permission denied" webhook=istio-revision-tag-default verb=%s instead=%q`, verb, instead)); n != 1 {
			t.Errorf("%s: logged %d times:\n%s", verb, n, &out)
		}
	}
}

func TestTagWatcher_FollowsAllTags(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		s := newServer(&server{hooks: []webhook{tagHook("a", "prod", "stable"), tagHook("b", "test", "canary")}})
		w := NewTags(s, Config{Revision: "stable", Logger: slog.New(slog.NewTextHandler(&out, nil))})
		var told []string
		w.AddHandler(nil)
		w.AddHandler(func(tags sets.Set[string]) { told = append(told, strings.Join(sets.List(tags), " ")) })
		end := runs(w.Run)
		synctest.Wait()
		if !w.HasSynced() {
			t.Error("not synced")
		}
		for _, e := range []watch.Event{
			of(watch.Modified, tagHook("a", "prod", "stable")), // no change
			of(watch.Added, tagHook("c", "stable", "canary")),  // a tag of another revision with our name
			of(watch.Added, tagHook("d", "new", "stable")),
			of(watch.Deleted, tagHook("a", "prod", "stable")),
		} {
			s.watches[hooksPath].Action(e.Type, e.Object)
			synctest.Wait()
			if e.Object.(*webhook).Name == "c" && w.IsMine(metav1.ObjectMeta{Labels: map[string]string{revisionLabel: "stable"}}) {
				t.Error("mine, although another revision has a tag of that name")
			}
		}
		end()
		if want := []string{"prod stable", "prod stable", "new prod stable", "new stable"}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
	if got := strings.Count(out.String(), `msg="tags changed"`); got != 4 {
		t.Errorf("%d lines of tags:\n%s", got, &out)
	}
	if got := strings.Count(out.String(), "handler is nil"); got != 1 {
		t.Errorf("a handler that is nil is reported %d times", got)
	}
}
