package bootstrap

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/pkg/revisions"
	"incumbent.dev/incumbent/tests/cluster"
)

// What parts of a server do with answers that a real API server gives seldom, or late. That
// they get along with a real one is elsewhere in this package.

// answered is a configuration whose requests a test answers.
func answered(answer func(r *http.Request) (*http.Response, error)) *rest.Config {
	return &rest.Config{Host: "https://10.0.0.1:6443", WrapTransport: func(http.RoundTripper) http.RoundTripper { return roundTripper(answer) }}
}

// jsonAnswer is a response with a value as JSON.
func jsonAnswer(r *http.Request, value any) (*http.Response, error) {
	content, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Request: r, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(content)),
	}, nil
}

// failed is an answer that is an error.
func failed(r *http.Request, err *apierrors.StatusError) (*http.Response, error) {
	status := err.Status()
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	resp, wrong := jsonAnswer(r, status)
	if resp != nil {
		resp.StatusCode = int(status.Code)
	}
	return resp, wrong
}

// writes are the Events that were written.
type writes struct {
	mu  sync.Mutex
	all []corev1.Event
}

func (w *writes) take(r *http.Request) (*http.Response, error) {
	content, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var event corev1.Event
	if err := json.Unmarshal(content, &event); err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.all = append(w.all, event)
	w.mu.Unlock()
	event.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}
	return jsonAnswer(r, event)
}

func (w *writes) messages() (all []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, event := range w.all {
		all = append(all, event.Message)
	}
	return all
}

// Events are written while they run, the last ones before they end, and none otherwise; an API
// server that does not take them holds the end up for so long and no longer.
func TestEventsAreWrittenUntilTheEnd(t *testing.T) {
	for name, test := range map[string]struct {
		slow  time.Duration // the API server's answer takes so long
		took  time.Duration // the end does
		late  int
		count int
	}{
		"at once":  {count: 2},
		"slowly":   {slow: 500 * time.Millisecond, took: time.Second, count: 2},
		"too late": {slow: 3 * time.Second, took: 2 * time.Second, late: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var written writes
				client := cluster.ClientFor(t, func() *rest.Config {
					c := answered(func(r *http.Request) (*http.Response, error) {
						select {
						case <-time.After(test.slow):
							return written.take(r)
						case <-r.Context().Done():
							return nil, r.Context().Err()
						}
					})
					c.ContentType = "application/json"
					return c
				}())
				log := &harness.Log{}
				e := newEvents(client, "the-pod", slog.New(slog.NewTextHandler(log, nil)))
				object := &corev1.ObjectReference{Kind: "Lease", Namespace: "home", Name: "lock"}
				e.Eventf(object, corev1.EventTypeNormal, "Reason", "before")
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- e.run(ctx) }()
				synctest.Wait()
				e.Eventf(object, corev1.EventTypeNormal, "Reason", "one of %d", 2)
				e.Eventf(object, corev1.EventTypeWarning, "Reason", "the last")
				began := time.Now()
				cancel()
				if err := <-ended; err != nil || time.Since(began) != test.took {
					t.Errorf("it ended after %v with %v", time.Since(began), err)
				}
				e.Eventf(object, corev1.EventTypeNormal, "Reason", "after")
				synctest.Wait()
				if got := strings.Join(written.messages(), ", "); test.count > 0 && got != "one of 2, the last" || test.count == 0 && got != "" {
					t.Errorf("written are %q", got)
				}
				if n := log.Count("the last Events were not written in time"); n != test.late {
					t.Errorf("that some are missing was said %d times", n)
				}
				for _, event := range written.all {
					if event.Source.Component != userAgent || event.Source.Host != "the-pod" || event.InvolvedObject.Name != "lock" || event.Namespace != "home" {
						t.Errorf("an Event is %+v", event)
					}
				}
			})
		})
	}
}

// recordedEvents are those that would be written.
type recordedEvents struct{ all []string }

func (e *recordedEvents) Eventf(object runtime.Object, kind, reason, message string, args ...any) {
	about := object.(*corev1.ObjectReference)
	e.all = append(e.all, fmt.Sprintf("%s %s %s/%s %s: ", kind, about.Kind, about.Namespace, about.Name, reason)+fmt.Sprintf(message, args...))
}

// What is said of a lock of the other kind, look by look: in the log, by the metric, in Events
// and on the page.
func TestWhatIsSaidOfAnotherLock(t *testing.T) {
	held := func(n int) string {
		return fmt.Sprintf(`{"holderIdentity":"x","leaseDurationSeconds":10,"leaderTransitions":%d}`, n)
	}
	object := func(record string) func(r *http.Request) (*http.Response, error) {
		return func(r *http.Request) (*http.Response, error) {
			return jsonAnswer(r, corev1.ConfigMap{
				TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
				ObjectMeta: metav1.ObjectMeta{Name: electionID, Annotations: map[string]string{locks.LeaderElectionRecordAnnotationKey: record}},
			})
		}
	}
	gr := schema.GroupResource{Resource: "configmaps"}
	none := func(r *http.Request) (*http.Response, error) { return failed(r, apierrors.NewNotFound(gr, electionID)) }
	forbidden := func(r *http.Request) (*http.Response, error) {
		return failed(r, apierrors.NewForbidden(gr, electionID, errors.New("no")))
	}
	gone := func(*http.Request) (*http.Response, error) { return nil, errAway }
	var answer func(r *http.Request) (*http.Response, error)
	var asked []string
	config := goodConfig()
	config.Lock = "lease"
	text := &harness.Log{}
	config.Logger = slog.New(slog.NewTextHandler(text, nil))
	config.RESTConfig = answered(func(r *http.Request) (*http.Response, error) {
		asked = append(asked, r.Method+" "+r.URL.Path)
		if deadline, bounded := r.Context().Deadline(); !bounded || time.Until(deadline) > otherTimeout {
			t.Errorf("%s may take until %v", r.URL.Path, deadline)
		}
		return answer(r)
	})
	s, err := newServer(config, newController().rows())
	if err != nil {
		t.Fatal(err)
	}
	events := &recordedEvents{}
	s.others.events = events
	le, begin := s.elections.All()[0], time.Now()
	const warning = "Warning %s istio-system/" + electionID + " LeaderElection: pilot-a elects by lease while x holds the configmap: both work"
	for i, step := range []struct {
		answer func(r *http.Request) (*http.Response, error)
		at     time.Duration
		again  bool
		held   string
		said   string // in the log, since the step before
		state  string
	}{
		{none, 0, false, "0", "", ""},
		{gone, 0, true, "0", "cannot be looked for", ""},
		{gone, 0, true, "0", "", ""},
		{forbidden, 0, false, "0", "", ""},
		{object(held(1)), 0, true, "0", "", ""},
		{object(held(1)), 10 * time.Second, true, "0", "", ""},
		{object(held(2)), 11 * time.Second, true, "1", apartText, "x holds the configmap"},
		{object(held(3)), 12 * time.Second, true, "1", "", "x holds the configmap"},
		{gone, 13 * time.Second, true, "1", "cannot be looked for", "x holds the configmap"},
		{object(held(3)), 22 * time.Second, true, "1", "", "x holds the configmap"},
		{object(held(3)), 23 * time.Second, false, "0", "nobody elects by another kind of lock any more", ""},
		{none, 24 * time.Second, false, "0", "", ""},
		{object(held(4)), 25 * time.Second, true, "0", "", ""},
		{object(held(4)), 36 * time.Second, false, "0", "left behind", ""},
		{object(held(4)), 37 * time.Second, false, "0", "", ""},
	} {
		answer = step.answer
		before := text.String()
		if again := s.others.look(t.Context(), le, begin.Add(step.at)); again != step.again {
			t.Errorf("step %d: looked for again: %v", i, again)
		}
		said := strings.TrimPrefix(text.String(), before)
		if (step.said == "") != (said == "") || !strings.Contains(said, step.said) || said != "" && (!strings.Contains(said, "ours=lease other=configmap") || strings.Count(said, "\n") != 1) {
			t.Errorf("step %d: it says %q", i, said)
		}
		if _, page := get(t, s, "/metrics"); !strings.Contains(page, fmt.Sprintf("incumbent_election_other_lock_held{name=%q} %s\n", electionID, step.held)) {
			t.Errorf("step %d: the metric is not %s", i, step.held)
		}
		if state := s.others.state(le); state != step.state {
			t.Errorf("step %d: the page says %q", i, state)
		}
	}
	want := []string{fmt.Sprintf(warning, "Lease"), fmt.Sprintf(warning, "ConfigMap")}
	if strings.Join(events.all, "\n") != strings.Join(want, "\n") {
		t.Errorf("the Events are\n%s", strings.Join(events.all, "\n"))
	}
	for _, request := range asked {
		if request != "GET /api/v1/namespaces/istio-system/configmaps/"+electionID {
			t.Errorf("it asks for %s", request)
		}
	}
}

// watcher is one of the default revision, of which a test says how it is.
type watcher struct {
	revisions.DefaultWatcher
	synced  bool
	problem error
}

func (w *watcher) HasSynced() bool { return w.synced }
func (w *watcher) Problem() error  { return w.problem }

// silentWatcher does not tell what is wrong.
type silentWatcher struct{ revisions.DefaultWatcher }

func (silentWatcher) HasSynced() bool { return false }

// Whoever was let in once stays ready until the stop.
func TestReadyFromBeingLetInToTheStop(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", errors.New("no"))
	for name, test := range map[string]struct {
		first   watcher
		ready   bool
		problem string
	}{
		"nothing is known": {watcher{}, false, errNotReached.Error()},
		"away":             {watcher{problem: errAway}, false, errAway.Error()},
		"synced":           {watcher{synced: true}, true, ""},
		"forbidden":        {watcher{problem: forbidden}, true, ""},
		"synced, and away": {watcher{synced: true, problem: errAway}, true, ""},
	} {
		s, err := New(goodConfig())
		if err != nil {
			t.Fatal(err)
		}
		now := test.first
		s.watcher = &now
		if err := s.ready(); (err == nil) != test.ready || err != nil && (!errors.Is(err, errNotReached) || !strings.Contains(err.Error(), test.problem)) {
			t.Errorf("%s: %v", name, err)
		}
		now = watcher{problem: errAway}
		if err := s.ready(); (err == nil) != test.ready {
			t.Errorf("%s, and then the API server goes away: %v", name, err)
		}
		s.stopping.Store(true)
		if err := s.ready(); !errors.Is(err, errStopping) {
			t.Errorf("%s, and then it stops: %v", name, err)
		}
	}
	s, err := New(goodConfig())
	if err != nil {
		t.Fatal(err)
	}
	s.watcher = silentWatcher{}
	if err := s.ready(); !errors.Is(err, errNotReached) {
		t.Errorf("without a word from the watcher: %v", err)
	}
}
