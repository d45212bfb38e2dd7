package kube

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// secured is an API server with HTTP/2 that records its connections. A watch is a stream that lasts until the test ends.
type secured struct {
	*httptest.Server
	posts  atomic.Int32
	accept atomic.Int32 // number of connections to accept without serving them
	// slow receives a channel for each request for namespace "slow". The response is sent when the channel or end closes.
	slow chan chan struct{}
	end  chan struct{}

	mu sync.Mutex
	// used has the connections that carried requests. On a busy machine, the client may open others and use only the first.
	used map[string]bool
}

// connections returns the number of connections that carried requests.
func (s *secured) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.used)
}

func secure(t *testing.T) (*secured, *rest.Config) {
	t.Helper()
	s := &secured{slow: make(chan chan struct{}), end: make(chan struct{}), used: map[string]bool{}}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.used[r.RemoteAddr] = true
		s.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method == http.MethodPost:
			s.posts.Add(1)
		case r.URL.Query().Get("watch") == "true":
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-s.end
		case r.URL.Path == "/api/v1/namespaces/slow":
			respond := make(chan struct{})
			select {
			case s.slow <- respond:
			case <-s.end:
			case <-r.Context().Done():
			}
			select {
			case <-respond:
			case <-s.end:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `{"kind":"Namespace","apiVersion":"v1"}`)
	}))
	s.EnableHTTP2 = true
	s.Listener = &silent{Listener: s.Listener, ignored: &s.accept}
	s.StartTLS()
	t.Cleanup(s.Close)
	t.Cleanup(sync.OnceFunc(func() { close(s.end) }))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	return s, &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{CAData: ca}, QPS: -1}
}

// silent accepts some connections and does not serve them.
type silent struct {
	net.Listener
	ignored *atomic.Int32
	mu      sync.Mutex
	taken   []net.Conn
}

func (s *silent) Accept() (net.Conn, error) {
	for {
		conn, err := s.Listener.Accept()
		if err != nil || s.ignored.Add(-1) < 0 {
			return conn, err
		}
		s.mu.Lock()
		s.taken = append(s.taken, conn)
		s.mu.Unlock()
	}
}

func (s *silent) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, conn := range s.taken {
		conn.Close()
	}
	return s.Listener.Close()
}

func made(t *testing.T, config *rest.Config, opts ...Option) Client {
	t.Helper()
	c, err := NewClient(config, opts...)
	harness.Must(t, err)
	t.Cleanup(func() { CloseIdleConnections(c) })
	return c
}

func get(ctx context.Context, c kubernetes.Interface, name string) error {
	_, err := c.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	return err
}

// expiring is a context whose deadline passes when the test closes passed.
type expiring struct {
	context.Context
	passed chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.passed }

func (e expiring) Err() error {
	select {
	case <-e.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// timesOut sends a request whose deadline passes after its arrival.
func (s *secured) timesOut(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	ctx := expiring{t.Context(), make(chan struct{})}
	go func() {
		<-s.slow
		close(ctx.passed)
	}()
	if err := get(ctx, c, "slow"); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestTimeout_RetiresConnection(t *testing.T) {
	s, config := secure(t)
	c := made(t, config).Kube()
	bounded, end := context.WithTimeout(t.Context(), 30*time.Second) // a request on a closed connection may be sent again and hang
	defer end()
	for range 3 {
		harness.Must(t, get(bounded, c, "a"))
	}
	if n := s.connections(); n != 1 {
		t.Fatalf("%d connections for requests that were answered", n)
	}
	// The other request on the connection continues and gets its response.
	other := make(chan error, 1)
	go func() { other <- get(bounded, c, "slow") }()
	respond := <-s.slow
	s.timesOut(t, c)
	if err := get(bounded, c, "a"); err != nil || s.connections() != 2 {
		t.Errorf("after a time-out: %v, over connection %d", err, s.connections())
	}
	select {
	case err := <-other:
		t.Errorf("another's request ended: %v", err)
	default:
	}
	// A cancelled request does not retire the connection.
	ctx, cancel := context.WithCancel(bounded)
	go func() {
		<-s.slow
		cancel()
	}()
	if err := get(ctx, c, "slow"); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := get(bounded, c, "a"); err != nil || s.connections() != 2 {
		t.Errorf("after a cancellation: %v, over connection %d", err, s.connections())
	}
	close(respond)
	select {
	case err := <-other:
		if err != nil || s.connections() != 2 {
			t.Errorf("another's request on a connection out of use: %v; %d connections", err, s.connections())
		}
	case <-s.slow:
		t.Error("another's request was sent again")
	}
}

// The second attempt of a request uses another connection. If it is answered first, later requests use that connection.
func TestSecondAttempt_OtherConnection(t *testing.T) {
	s, config := secure(t)
	c := made(t, config).Kube()
	twice := func(answer func(second bool) string) {
		t.Helper()
		var latency apirequest.Latency
		_, err := apirequest.Twice(t.Context(), &latency, apirequest.Rejected, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, get(ctx, c, answer(apirequest.IsSecond(ctx)))
		})
		harness.Must(t, err)
	}
	if err := get(t.Context(), c, "a"); err != nil || s.connections() != 1 {
		t.Fatalf("%v, over connection %d", err, s.connections())
	}
	// The first attempt is slow, but answered first. Its connection remains in use.
	respond := make(chan chan struct{}, 2)
	go func() {
		first := <-s.slow
		respond <- <-s.slow
		close(first)
	}()
	twice(func(bool) string { return "slow" })
	if err := get(t.Context(), c, "a"); err != nil || s.connections() != 2 {
		t.Errorf("after a slow answer: %v, over connection %d", err, s.connections())
	}
	// The first attempt is not answered. The spare connection is ready, and is used from then on.
	go func() { <-s.slow }()
	twice(func(second bool) string {
		if second {
			return "a"
		}
		return "slow"
	})
	if err := get(t.Context(), c, "a"); err != nil || s.connections() != 2 {
		t.Errorf("after a dead connection: %v, over connection %d", err, s.connections())
	}
}

// A second connection attempt starts if the first is slow, and no request is sent twice.
func TestSetup_IsRaced(t *testing.T) {
	s, config := secure(t)
	s.accept.Store(2)
	c := made(t, config).Kube()
	// If only one attempt started, the timeout of its TLS handshake would end the request.
	err := c.CoreV1().RESTClient().Post().Resource("namespaces").Body([]byte(`{}`)).Do(t.Context()).Error()
	if err != nil || s.posts.Load() != 1 {
		t.Errorf("sent %d times: %v", s.posts.Load(), err)
	}
}

func TestConnections_Shared(t *testing.T) {
	s, config := secure(t)
	first := made(t, config)
	count := func(c kubernetes.Interface) int {
		t.Helper()
		before := s.connections()
		harness.Must(t, get(t.Context(), c, "a"))
		return s.connections() - before
	}
	derive := func(from Client, opts ...Option) Client {
		t.Helper()
		c, err := Derive(from, opts...)
		harness.Must(t, err)
		t.Cleanup(func() { CloseIdleConnections(c) })
		return c
	}
	if n := count(first.Kube()); n != 1 {
		t.Errorf("the first client made %d connections", n)
	}
	wrapped := derive(first, WithWrapTransport(func(next http.RoundTripper) http.RoundTripper { return roundTripper(next.RoundTrip) }))
	if n := count(derive(wrapped).Kube()); n != 0 {
		t.Errorf("a derived client made %d connections", n)
	}
	users, err := kubernetes.NewForConfig(first.RESTConfig())
	harness.Must(t, err)
	if n := count(users); n != 0 {
		t.Errorf("a client of RESTConfig made %d connections", n)
	}
	own := derive(first, WithOwnConnections())
	if n := count(own.Kube()); n != 1 {
		t.Errorf("one with connections of its own made %d", n)
	}
	if n := count(first.Kube()) + count(own.Kube()); n != 0 {
		t.Errorf("the two made %d more", n)
	}
	// A connection that was verified with one CA is not used with another CA.
	other := first.RESTConfig()
	other.CAData = nil
	distrusts, err := kubernetes.NewForConfig(other)
	harness.Must(t, err)
	if err := get(t.Context(), distrusts, "a"); err == nil {
		t.Error("a configuration with another CA goes over connections that were verified by this one's")
	}
}

// If the server closes a reused connection before it answers, net/http sends the request again, over a new connection.
func TestConnections_SentAgain(t *testing.T) {
	var requests atomic.Int32
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 2 {
			panic(http.ErrAbortHandler)
		}
	}))
	defer api.Close()
	c := newConnections(&http.Transport{})
	defer c.CloseIdleConnections()
	for range 2 {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL, nil)
		harness.Must(t, err)
		resp, err := c.RoundTrip(req)
		harness.Must(t, err)
		_, err = io.Copy(io.Discard, resp.Body)
		harness.Must(t, errors.Join(err, resp.Body.Close()))
	}
	if got := requests.Load(); got != 3 {
		t.Errorf("%d requests", got)
	}
}
