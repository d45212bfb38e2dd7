package bootstrap

import (
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/kube"
)

// Every value of the server's configuration gets to the one of its elections that it is for. What
// a running server makes of each is in effects.
func TestElectionsGetTheServersConfiguration(t *testing.T) {
	config := goodConfig()
	config.Namespace, config.Identity, config.Revision, config.Lock = "a-namespace", "an-identity", "a-revision", "lease"
	config.LeaseDuration, config.RenewDeadline, config.RetryPeriod, config.ShutdownTimeout = 41*time.Second, 23*time.Second, 5*time.Second, 7*time.Second
	config.healthTolerance, config.DisableElections = 3*time.Second, true
	config.ExitOnStuckDrain = true
	s, err := newServer(config, newController().rows())
	if err != nil {
		t.Fatal(err)
	}
	got := s.electionConfig(election{id: "an-election", perRevision: true})
	want := leaderelection.Config{
		Namespace: "a-namespace", Identity: "an-identity", Revision: "a-revision", ElectionID: "an-election", PerRevision: true,
		Lock: leaderelection.LeaseLock, LeaseDuration: 41 * time.Second, RenewDeadline: 23 * time.Second, RetryPeriod: 5 * time.Second,
		StopLimit: 7 * time.Second, HealthTolerance: 3 * time.Second, Disabled: true, ExitOnStuckDrain: true,
		DefaultWatcher: s.watcher, EventRecorder: s.events, Observer: s.metrics, Logger: s.log,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	s.site.config.remote = true
	if !s.electionConfig(election{}).Remote || got.Remote {
		t.Error("candidates of the remote cluster alone are remote ones")
	}
	// A row may say what kind its lock is of, and which one was before it.
	s.config.Lock = "multi"
	before := &leaderelection.Predecessor{Name: "an-election"}
	if got := s.electionConfig(election{lease: true, predecessor: before}); got.Lock != leaderelection.LeaseLock || got.Predecessor != before {
		t.Errorf("of a row's own lock: %v, %v", got.Lock, got.Predecessor)
	}
	if got := s.electionConfig(election{}); got.Lock != leaderelection.MultiLock || got.Predecessor != nil {
		t.Errorf("of a row without: %v, %v", got.Lock, got.Predecessor)
	}
}

// What is empty is named once, and not again for not being a name.
func TestWhatIsEmptyIsNamedOnce(t *testing.T) {
	config := goodConfig()
	config.Namespace, config.Identity = "", ""
	_, err := New(config)
	for _, flag := range []string{"--namespace", "--identity"} {
		if err == nil || strings.Count(err.Error(), flag) != 1 {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// Each request for an Event has its time, and its failure is the broadcaster's to know.
func TestRequestsForEventsAreBoundedAndFail(t *testing.T) {
	tried := 0
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1", WrapTransport: func(http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			tried++
			deadline, bounded := r.Context().Deadline()
			if left := time.Until(deadline); !bounded || left <= 0 || left > eventTimeout {
				t.Errorf("%s %s has %v (%v)", r.Method, r.URL.Path, left, bounded)
			}
			return nil, errAway
		})
	}}, kube.WithOwnConnections())
	if err != nil {
		t.Fatal(err)
	}
	defer kube.CloseIdleConnections(client)
	sink := &eventSink{ctx: t.Context(), client: client, trouble: kube.NewTrouble(quiet, nil)}
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "home", Name: "an-event"}}
	for verb, send := range map[string]func() (*corev1.Event, error){
		"create": func() (*corev1.Event, error) { return sink.Create(event) },
		"update": func() (*corev1.Event, error) { return sink.Update(event) },
		"patch":  func() (*corev1.Event, error) { return sink.Patch(event, []byte("{}")) },
	} {
		before := tried
		if _, err := send(); !errors.Is(err, errAway) || tried == before {
			t.Errorf("%s: %v, after %d requests", verb, err, tried-before)
		}
	}
}

// A controller is prepared before its process campaigns: nobody asks for the lock until then.
func TestNobodyCampaignsBeforeItsControllerIsWarm(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.config(t, "a")
	var sent requests
	sent.through(config.RESTConfig)
	c := newController()
	c.cold = make(chan struct{})
	r := start(t, config, c.rows())
	select {
	case <-c.warms:
	case <-time.After(patience):
		t.Fatal("its controller is not prepared")
	}
	other := start(t, e.config(t, "b"), newController().rows())
	other.leads(t)
	campaigns := sent.that(func(r *http.Request) bool {
		return r.Method != http.MethodGet && strings.Contains(r.URL.Path, "configmaps")
	})
	if len(campaigns) > 0 || r.election(t).Leading {
		t.Errorf("it has sent %d writes for the lock before its controller was warm", len(campaigns))
	}
	close(c.cold)
	await(t, "it follows", func() bool { return r.election(t).LeaderIdentity == "b" })
	if err := other.end(); err != nil {
		t.Error(err)
	}
	r.leads(t)
	select {
	case <-c.began:
	case <-time.After(patience):
		t.Error("it does not work")
	}
}
