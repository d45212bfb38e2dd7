package bootstrap

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/debug"
)

// shows is what a replica's elections page shows, "" while it does not answer.
func (r *replica) shows(t *testing.T) string {
	t.Helper()
	_, body := harness.Page(t, r.Server.page.http.address(), debug.Path)
	return body
}

func debugAddressHasItsEffect(t *testing.T, e *environment) {
	config := e.config(t, "a")
	config.DebugAddress = "127.0.0.1:0"
	config.Revision = "a-revision"
	c := newController()
	c.cold = make(chan struct{})
	a := start(t, config, c.rows())
	await(t, "it is a candidate that is not warm", func() bool { return strings.Contains(a.shows(t), "nobody leads") })
	close(c.cold)
	a.leads(t)
	await(t, "it leads, and nobody follows", func() bool {
		page := a.shows(t)
		return strings.Contains(page, `<span class="here">this process</span>`) && strings.Contains(page, "gate open") &&
			strings.Contains(page, `data-label="Followers"><span class="quiet">none</span>`)
	})
	stream, err := http.Get("http://" + a.Server.page.http.address() + debug.Path + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	frames := bufio.NewReader(stream.Body)
	if line, err := frames.ReadString('\n'); err != nil || line == "" {
		t.Errorf("the stream begins with %q, error %v", line, err)
	}

	config = e.config(t, "b")
	config.DebugAddress = a.Server.page.http.address()
	b := start(t, config, newController().rows())
	await(t, "another takes part, without a page: there is one at that address", func() bool {
		_, metrics := b.page(t, "/metrics")
		return strings.Contains(metrics, "leader_election_master_status") && b.Server.page.http.address() == ""
	})
	await(t, "the page shows who follows", func() bool {
		page := a.shows(t)
		return strings.Contains(page, "<summary>1, 1 ready</summary>") && strings.Contains(page, `<span class="identity">b</span>`)
	})
	if err := b.end(); err != nil {
		t.Error(err)
	}
	await(t, "who has ended follows no more", func() bool { return !strings.Contains(a.shows(t), `<span class="identity">b</span>`) })
	if err := a.end(); err != nil { // with a reader
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, frames) // it ends; that it does in mid-frame is nothing to a browser
	config = e.config(t, "c")
	config.DebugAddress = "127.0.0.1:0"
	c2 := start(t, config, newController().rows())
	await(t, "the page of a process that began later shows who led before, by the Events", func() bool {
		page := c2.shows(t)
		return strings.Contains(page, "<title>a led, ") && strings.Contains(page, "c (stable) took it")
	})
	config = e.config(t, "d")
	if config.DebugAddress != "" || start(t, config, newController().rows()).Server.page != nil {
		t.Error("there is a page, which nobody asked for")
	}
}

// What Events tell of an election: its terms, in order, and nothing of others'.
func TestTermsAreReadFromEvents(t *testing.T) {
	about := corev1.ObjectReference{Kind: inspect.ConfigMap, Namespace: "home", Name: "led"}
	at := func(second int, about corev1.ObjectReference, message string) corev1.Event {
		return corev1.Event{InvolvedObject: about, Message: message, LastTimestamp: metav1.NewTime(time.Unix(int64(second), 0))}
	}
	other, lease, abroad := about, about, about
	other.Name, lease.Kind, abroad.Namespace = "other", inspect.Lease, "elsewhere"
	precise := corev1.Event{InvolvedObject: about, Message: "d became leader (lock-free)", EventTime: metav1.NewMicroTime(time.Unix(40, 0))}
	created := corev1.Event{InvolvedObject: about, Message: "d stopped leading (stopped)", ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(time.Unix(50, 0))}}
	events := []corev1.Event{
		created, precise,
		at(20, about, "b became leader (nominated)"), at(20, about, "a stopped leading (handing-over)"),
		at(10, about, "a became leader"), at(12, about, "a asked nobody to hand over"), at(13, about, ""),
		at(30, about, "c became leader (preempted)"), at(31, about, "b stopped leading (superseded): late"),
		at(11, other, "x became leader"), at(11, lease, "x became leader"), at(11, abroad, "x became leader"),
	}
	change := func(second int, leader string) debug.Change {
		return debug.Change{At: time.Unix(int64(second), 0), Leader: leader, Acting: leader != ""}
	}
	want := []debug.Change{change(10, "a"), change(20, ""), change(20, "b"), change(30, "c"), change(40, "d"), change(50, "")}
	got := termsOf(events, debug.Election{Kind: inspect.ConfigMap, Namespace: "home", Lock: "led"})
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	events[9].InvolvedObject = lease // of the same name
	if got := termsOf(events, debug.Election{Kind: inspect.Both, Namespace: "home", Lock: "led"}); len(got) <= len(want) {
		t.Errorf("of an election of two locks: %+v", got)
	}
}

// A page whose listener breaks ends the server, as its other parts do.
func TestElectionsPageEndsWithItsListener(t *testing.T) {
	p := &electionsPage{changed: make(chan struct{}, 1), ended: make(chan error, 1)}
	var err error
	if p.page, err = debug.New(debug.Config{Source: func() debug.State { return debug.State{} }}); err != nil {
		t.Fatal(err)
	}
	p.http = newHTTPServer("--debug-address", "127.0.0.1:0", p.page.Handler(), (&Config{}).withDefaults().Logger)
	if err := p.http.listen(); err != nil {
		t.Fatal(err)
	}
	if err := p.http.listener.Load().(net.Listener).Close(); err != nil {
		t.Fatal(err)
	}
	if err := p.run(context.Background()); err == nil {
		t.Error("no error")
	}
}
