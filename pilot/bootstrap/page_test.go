package bootstrap

import (
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

// The page shows the lock, followers and the Events of the cluster, and ends with the server. Without its address the server runs.
func TestElectionsPage(t *testing.T) {
	t.Parallel()
	e := newEnvironment(t)
	with := func(pod, address string, c *controller) *replica {
		config := e.config(t, pod)
		config.DebugAddress = address
		return start(t, config, c.rows())
	}
	c := newController()
	c.cold = make(chan struct{})
	e.breakRecord(t)
	a := with("a", "127.0.0.1:0", c)
	await(t, "no candidate is warm, and the page reads the lock", func() bool { return strings.Contains(a.shows(t), string(inspect.Unreadable)) })
	harness.Must(t, e.admin.Kube().CoreV1().ConfigMaps(e.home).Delete(t.Context(), electionID, metav1.DeleteOptions{}))
	close(c.cold)
	a.leads(t)
	stream, err := http.Get("http://" + a.Server.page.http.address() + page.Path + "/events")
	harness.Must(t, err)
	defer stream.Body.Close()
	b := with("b", a.Server.page.http.address(), newController())
	await(t, "another server runs without a page: its address is in use", func() bool {
		_, metrics := b.page(t, "/metrics")
		return strings.Contains(metrics, "leader_election_master_status") && b.Server.page.http.address() == ""
	})
	await(t, "the page shows the follower", func() bool { return strings.Contains(a.shows(t), `<span class="identity">b</span>`) })
	b.stop(t)
	await(t, "the Event of the term is written", func() bool {
		events, err := e.admin.Kube().CoreV1().Events(e.home).List(t.Context(), metav1.ListOptions{FieldSelector: "reason=LeaderElection"})
		return err == nil && slices.ContainsFunc(events.Items, func(event corev1.Event) bool { return strings.HasPrefix(event.Message, "a became leader") })
	})
	if err := a.end(); err != nil { // with a reader
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, stream.Body) // the stream ends
	later := with("c", "127.0.0.1:0", newController())
	await(t, "the page of a later process shows the earlier leader, from Events", func() bool { return strings.Contains(later.shows(t), "<title>a led, ") })
	if with("d", "", newController()).Server.page != nil {
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
