package revisions

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/apiserver"
)

func TestDefaultWatcher_FollowsWebhook(t *testing.T) {
	for namespace, name := range map[string]string{"": "istio-revision-tag-default", "mesh": "istio-revision-tag-default-mesh"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New()
				put(s, revisionHook("another", "another"))
				put(s, revisionHook(name, "stable"))
				w := NewDefaultWatcher(clientOf(t, s), "stable", namespace)
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
				for _, change := range []func(){
					func() { put(s, revisionHook(name, "canary")) }, func() { put(s, revisionHook(name, "canary")) },
					func() { put(s, revisionHook("another", "x")) }, func() { s.Delete(hooksPath, "", "another") },
					func() { s.Delete(hooksPath, "", name) }, func() { put(s, revisionHook(name, "")) },
				} {
					change()
					synctest.Wait()
				}
				end()
				if want := []string{"stable", "canary", "", "default"}; !slices.Equal(told, want) {
					t.Errorf("told %q, want %q", told, want)
				}
				if !w.HasSynced() || w.GetDefault() != "default" || w.(reporter).Problem() != nil {
					t.Errorf("after its end: synced %v, default %q, problem %v", w.HasSynced(), w.GetDefault(), w.(reporter).Problem())
				}
			})
		})
	}
}

func TestDefaultWatcher_Logs(t *testing.T) {
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		name := "istio-revision-tag-default"
		s := apiserver.New()
		put(s, revisionHook(name, "stable"))
		w := NewDefault(clientOf(t, s), Config{Revision: "stable", Logger: slog.New(slog.NewTextHandler(&out, nil))})
		w.AddHandler(nil)
		end := runs(w.Run)
		synctest.Wait()
		w.Run(nil)
		for _, revision := range []string{"stable", "canary", "canary"} {
			put(s, revisionHook(name, revision))
			synctest.Wait()
		}
		w.Run(nil)
		end()
		put(s, revisionHook(name, "stable"))
		end = runs(w.Run)
		synctest.Wait()
		put(s, revisionHook(name, "third"))
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
		s := apiserver.New()
		put(s, revisionHook(name, "stable"))
		w := NewDefaultWatcher(clientOf(t, s), "", "")
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
		s, lists := apiserver.New(), 0
		s.On(func(r apiserver.Request) apiserver.Fault {
			if r.Verb == "list" {
				if lists++; lists > 5 {
					return apiserver.Fault{}
				}
			}
			return apiserver.Fault{Err: forbidden}
		})
		w := NewDefault(clientOf(t, s), Config{PollInterval: time.Minute, Logger: slog.New(slog.NewTextHandler(&out, nil))})
		end := runs(w.Run)
		<-time.After(20 * time.Minute)
		if problem := w.(reporter).Problem(); problem == nil || !strings.Contains(problem.Error(), "watch: ") {
			t.Errorf("problem: %v", problem)
		}
		end()
		if lists < 14 || lists > 46 { // every 30 to 90 s, and some at the start
			t.Errorf("%d reads in 20 minutes", lists)
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
		s := apiserver.New()
		put(s, tagHook("a", "prod", "stable"))
		put(s, tagHook("b", "test", "canary"))
		w := NewTags(clientOf(t, s), Config{Revision: "stable", Logger: slog.New(slog.NewTextHandler(&out, nil))})
		var told []string
		w.AddHandler(nil)
		w.AddHandler(func(tags sets.Set[string]) { told = append(told, strings.Join(sets.List(tags), " ")) })
		end := runs(w.Run)
		synctest.Wait()
		if !w.HasSynced() {
			t.Error("not synced")
		}
		mine := func() bool { return w.IsMine(metav1.ObjectMeta{Labels: map[string]string{tagging.Label: "stable"}}) }
		put(s, tagHook("a", "prod", "stable")) // no change
		synctest.Wait()
		put(s, tagHook("c", "stable", "canary")) // a tag of another revision with our name
		if synctest.Wait(); mine() {
			t.Error("mine, although another revision has a tag of that name")
		}
		put(s, tagHook("d", "new", "stable"))
		synctest.Wait()
		s.Delete(hooksPath, "", "a")
		synctest.Wait()
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
