package bootstrap

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/page"
)

// shows returns a replica's elections page, empty while it is not served.
func (r *replica) shows(t *testing.T) string {
	t.Helper()
	_, body := harness.Page(t, r.Server.page.http.address(), page.Path)
	return body
}

func TestElectionsPage(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	config := e.config(t, "a")
	config.DebugAddress = "127.0.0.1:0"
	config.Revision = "a-revision"
	c := newController()
	c.cold = make(chan struct{})
	e.breakRecord(t)
	a := start(t, config, c.rows())
	await(t, "no candidate is warm, and the page reads the lock", func() bool { return strings.Contains(a.shows(t), string(inspect.Unreadable)) })
	harness.Must(t, e.admin.Kube().CoreV1().ConfigMaps(e.home).Delete(t.Context(), electionID, metav1.DeleteOptions{}))
	close(c.cold)
	a.leads(t)
	await(t, "it leads without followers", func() bool {
		p := a.shows(t)
		return strings.Contains(p, `<span class="here">this process</span>`) && strings.Contains(p, "gate open") &&
			strings.Contains(p, `data-label="Followers"><span class="quiet">none</span>`)
	})
	stream, err := http.Get("http://" + a.Server.page.http.address() + page.Path + "/events")
	harness.Must(t, err)
	defer stream.Body.Close()
	frames := bufio.NewReader(stream.Body)
	if line, err := frames.ReadString('\n'); err != nil || line == "" {
		t.Errorf("the stream begins with %q, error %v", line, err)
	}

	config = e.config(t, "b")
	config.DebugAddress = a.Server.page.http.address()
	b := start(t, config, newController().rows())
	await(t, "another server runs without a page: its address is in use", func() bool {
		_, metrics := b.page(t, "/metrics")
		return strings.Contains(metrics, "leader_election_master_status") && b.Server.page.http.address() == ""
	})
	await(t, "the page shows the follower", func() bool {
		p := a.shows(t)
		return strings.Contains(p, "<summary>1 ready</summary>") && strings.Contains(p, `<span class="identity">b</span>`)
	})
	b.stop(t)
	await(t, "the page shows no follower", func() bool { return !strings.Contains(a.shows(t), `<span class="identity">b</span>`) })
	await(t, "the Event of the term is written", func() bool {
		events, err := e.admin.Kube().CoreV1().Events(e.home).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=LeaderElection"})
		return err == nil && slices.ContainsFunc(events.Items, func(event corev1.Event) bool { return strings.HasPrefix(event.Message, "a became leader") })
	})
	if err := a.end(); err != nil { // with a reader
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, frames) // the stream ends
	config = e.config(t, "c")
	config.DebugAddress = "127.0.0.1:0"
	c2 := start(t, config, newController().rows())
	await(t, "the page of a later process shows the earlier leader, from Events", func() bool {
		p := c2.shows(t)
		return strings.Contains(p, "<title>a led, ") && strings.Contains(p, "c (stable) acquired the lock")
	})
	config = e.config(t, "d")
	if config.DebugAddress != "" || start(t, config, newController().rows()).Server.page != nil {
		t.Error("a page without --debug-address")
	}
}

func TestElectionsPage_ListenerFails(t *testing.T) {
	p := &electionsPage{changed: make(chan struct{}, 1), page: page.New(page.Config{Source: func() page.State { return page.State{} }})}
	p.http = newHTTPServer("--debug-address", "127.0.0.1:0", p.page.Handler(), (&Config{}).withDefaults().Logger)
	harness.Must(t, p.http.listen())
	harness.Must(t, p.http.listener.Close())
	if err := p.run(context.Background()); err == nil {
		t.Error("no error")
	}
}
