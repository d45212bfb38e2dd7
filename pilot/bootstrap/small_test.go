package bootstrap

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/kube"
)

func TestDefaults(t *testing.T) {
	got := Config{Logger: quiet}.withDefaults()
	want := Config{QPS: 40, Burst: 60, IngressMode: "STRICT", IngressClass: "istio", IngressService: "istio-ingressgateway", Lock: "configmap", ShutdownTimeout: 20 * time.Second, Revision: "default", Logger: quiet}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	given := Config{QPS: -1, Burst: 2, IngressMode: "OFF", IngressClass: "c", IngressService: "s", Lock: "lease", ShutdownTimeout: time.Second, Revision: "r", Logger: quiet}
	if got := given.withDefaults(); !reflect.DeepEqual(got, given) {
		t.Errorf("what was given became %+v", got)
	}
	if (Config{}).withDefaults().Logger == nil {
		t.Error("no logger")
	}
}

// That Events are refused is said once, until they are taken again; other failures are the
// broadcaster's, which tries again.
func TestRefusedEventsAreSaidOnce(t *testing.T) {
	var log bytes.Buffer
	sink := &eventSink{trouble: kube.NewTrouble(slog.New(slog.NewTextHandler(&log, nil)), nil)}
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "", errors.New("no"))
	event := &corev1.Event{Message: "mine"}
	for i, step := range []struct {
		err  error
		said int
	}{{forbidden, 1}, {forbidden, 1}, {errAway, 1}, {forbidden, 1}, {nil, 1}, {forbidden, 2}} {
		stored, err := sink.written(event)(nil, step.err)
		if refused := errors.Is(step.err, forbidden); refused && (err != nil || stored != event) || !refused && !errors.Is(err, step.err) {
			t.Errorf("step %d: %v, %v", i, stored, err)
		}
		if n := strings.Count(log.String(), `msg="permission is missing" verb="write Events"`); n != step.said {
			t.Errorf("step %d: said %d times", i, n)
		}
	}
}

// When the server stops, none comes in any more, a request under way gets its answer, which
// ends the server, and one that does not end is cut off.
func TestHTTPServerEndsRequestsInOrder(t *testing.T) {
	for name, ends := range map[string]bool{"it ends": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			arrived, release := make(chan struct{}), make(chan struct{})
			h := newHTTPServer("--address", "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				close(arrived)
				<-release
				fmt.Fprint(w, "answer")
			}), quiet)
			if h.address() != "" {
				t.Error("it listens already")
			}
			if err := h.listen(); err != nil {
				t.Fatal(err)
			}
			if patience := h.server.ReadHeaderTimeout; patience <= 0 || patience > headerTimeout {
				t.Errorf("a client that asks nothing is waited for for %v", patience)
			}
			if ends {
				h.bound = time.Hour // what it waited for was not that
			}
			ctx, cancel := context.WithCancel(t.Context())
			served, answered := make(chan error, 1), make(chan string, 1)
			go func() { served <- h.serve(ctx) }()
			go func() { answered <- ask(ctx, h.address()) }()
			<-arrived
			cancel()
			if ends {
				await(t, "none comes in any more", func() bool {
					conn, err := net.Dial("tcp", h.address())
					if err == nil {
						conn.Close()
					}
					return errors.Is(err, syscall.ECONNREFUSED)
				})
				close(release)
			} else {
				defer close(release)
			}
			if err := <-served; err != nil {
				t.Errorf("it ended with %v", err)
			}
			if got := <-answered; (got == "answer") != ends {
				t.Errorf("got %q", got)
			}
		})
	}
}

// ask asks, with a context that outlives ctx.
func ask(ctx context.Context, address string) string {
	request, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodGet, "http://"+address, nil)
	if err != nil {
		return err.Error()
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// That the server stops is known before the first part is told to, whatever made it stop.
func TestStoppingIsKnownBeforeThePartsStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		early := part{name: "b", bound: time.Second, run: func(context.Context) error { return nil }}
		err := runParts(t.Context(), quiet, func() { d.note("stopping") }, []part{d.part("a", 0, nil), early})
		if want := []string{"start a", "stopping", "end a"}; err == nil || !slices.Equal(d.lines, want) {
			t.Errorf("%v, %q, want %q", err, d.lines, want)
		}
	})
}

func TestOtherLockLookByLook(t *testing.T) {
	begin := time.Now()
	record := func(renewed string, notes map[string]string) locks.Snapshot {
		return locks.Snapshot{
			Exists: true, Record: locks.LeaderElectionRecord{HolderIdentity: "x", LeaseDurationSeconds: 10, LeaderTransitions: 3},
			Raw: []byte(renewed), Notes: notes,
		}
	}
	released := record("r", nil)
	released.Record.HolderIdentity = ""
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "", errors.New("no"))
	type look struct {
		snap  locks.Snapshot
		err   error
		after time.Duration
		again bool
		want  string // what is known then
	}
	for name, looks := range map[string][]look{
		"none":             {{again: false, want: ""}},
		"released":         {{snap: released, want: ""}},
		"renewed":          {{snap: record("1", nil), again: true, want: "seen"}, {snap: record("2", nil), again: true, want: "renewed"}, {snap: record("2", nil), again: true, want: "renewed"}, {snap: released, want: ""}},
		"left":             {{snap: record("1", nil), again: true, want: "seen"}, {snap: record("1", nil), after: 10 * time.Second, again: true, want: "seen"}, {snap: record("1", nil), after: 11 * time.Second, want: "left"}},
		"died":             {{snap: record("1", nil), again: true, want: "seen"}, {snap: record("2", nil), again: true, want: "renewed"}, {snap: record("2", nil), after: 11 * time.Second, want: "left"}},
		"multi":            {{snap: record("1", map[string]string{locks.MultiLockAnnotation: "v1 x 3 uid"}), want: ""}},
		"predecessor":      {{snap: record("1", map[string]string{locks.PredecessorAnnotation: "v1 x 3 y"}), want: ""}},
		"multi of another": {{snap: record("1", map[string]string{locks.MultiLockAnnotation: "v1 y 3"}), again: true, want: "seen"}},
		"forbidden":        {{err: forbidden, want: "failed"}},
		"away":             {{err: errAway, again: true, want: "failed"}, {snap: record("1", nil), again: true, want: "seen"}},
	} {
		var state otherLook
		for i, l := range looks {
			var again bool
			state, again = state.after(l.snap, l.err, begin.Add(l.after))
			got := map[bool]string{true: "seen"}[!state.since.IsZero()]
			for word, holds := range map[string]bool{"renewed": state.renewed, "left": state.left, "failed": state.failed} {
				if holds {
					got = word
				}
			}
			if got != l.want || again != l.again {
				t.Errorf("%s, look %d: %q, again %v", name, i, got, again)
			}
		}
	}
}
