package page

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func newPage(t *testing.T, c Config) *Page {
	t.Helper()
	if c.Source == nil {
		c.Source = sample
	}
	return New(c)
}

func ask(p *Page, method, host, target string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, nil)
	req.Host = host
	w := httptest.NewRecorder()
	p.Handler().ServeHTTP(w, req)
	return w
}

func TestHosts(t *testing.T) {
	for _, c := range []struct {
		address, host string
		want          bool
	}{
		{"127.0.0.1:15016", "localhost:15016", true},
		{"127.0.0.1:15016", "LocalHost.:8080", true},
		{"127.0.0.1:15016", "127.0.0.1:15016", true},
		{"127.0.0.1:15016", "127.8.8.8", true},
		{"127.0.0.1:15016", "[::1]:15016", true},
		{"127.0.0.1:15016", "[::ffff:127.0.0.1]", true},
		{"127.0.0.1:15016", "evil.example", false},
		{"127.0.0.1:15016", "localhost.evil.example", false},
		{"127.0.0.1:15016", "127.0.0.1.evil.example", false},
		{"127.0.0.1:15016", "10.0.0.7", false},
		{"127.0.0.1:15016", "", false},
		{"10.0.0.7:15016", "10.0.0.7:15016", true},
		{"10.0.0.7:15016", "10.0.0.8:15016", false},
		{"[2001:db8::1]:15016", "[2001:DB8:0::1]:15016", true},
		{"debug.internal:15016", "debug.internal", true},
		{":15016", "10.0.0.7", true},
		{"0.0.0.0:15016", "10.0.0.7", true},
		{"[::]:15016", "10.0.0.7", true},
		{":15016", "evil.example", false},
		{":15016", "", false},
		{"", "localhost", true},
	} {
		if got := newHosts(c.address).answer(c.host); got != c.want {
			t.Errorf("%q answers %q: %t", c.address, c.host, got)
		}
	}
}

func TestAnswers(t *testing.T) {
	p := newPage(t, Config{})
	p.publish(p.look(newHistory(8)))
	for _, c := range []struct {
		method, host, target string
		status               int
		want                 string
	}{
		{"GET", "localhost", "/debug/elections", 200, "istio-status-leader"},
		{"HEAD", "localhost", "/debug/elections", 200, ""},
		{"GET", "localhost", "/", 302, "/debug/elections"},
		{"GET", "localhost", "/debug/elections?range=7m", 400, "give 5m"},
		{"GET", "localhost", "/debug/elections/events?range=7m", 400, "give 5m"},
		{"GET", "localhost", "/debug/elections/events", 503, "not running"},
		{"GET", "localhost", "/elsewhere", 404, ""},
		{"GET", "evil.example", "/debug/elections", 421, `"evil.example"`},
		{"GET", "evil.example", "/debug/elections/events", 421, "localhost"},
		{"POST", "localhost", "/debug/elections", 405, "read-only"},
		{"DELETE", "localhost", "/debug/elections/page.css", 405, "read-only"},
		{"GET", "localhost", "/debug/elections/page.css", 200, ".over-100{--over:-1.00}"},
		{"GET", "localhost", "/debug/elections/page.js", 200, "EventSource"},
		{"GET", "localhost", "/debug/elections/idiomorph.js", 200, "Idiomorph"},
		{"GET", "localhost", "/debug/elections/icon.svg", 200, "<svg"},
	} {
		w := ask(p, c.method, c.host, c.target)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.want) {
			t.Errorf("%s %s as %s: %d %.200s", c.method, c.target, c.host, w.Code, w.Body)
		}
		csp := w.Header().Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "img-src 'self'", "frame-ancestors 'none'"} {
			if !strings.Contains(csp, part+";") && !strings.HasSuffix(csp, part) {
				t.Errorf("%s %s: policy %q lacks %s", c.method, c.target, csp, part)
			}
		}
		if strings.Contains(csp, "unsafe") || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: headers %v", c.method, c.target, w.Header())
		}
	}
	if w := ask(newPage(t, Config{}), "GET", "localhost", Path); w.Code != 503 {
		t.Errorf("before the first frame: %d", w.Code)
	}
}

// pipes is a listener whose connections have no buffers, for a server in a synctest bubble.
type pipes struct {
	accept chan net.Conn
	closed chan struct{}
}

func (l *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipes) Close() error   { close(l.closed); return nil }
func (l *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// served is a running page and its HTTP server.
type served struct {
	page    *Page
	pipes   *pipes
	stop    context.CancelFunc
	stopped chan error
}

func serve(t *testing.T, c Config) *served {
	s := &served{page: newPage(t, c), pipes: &pipes{make(chan net.Conn), make(chan struct{})}, stopped: make(chan error, 1)}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.stopped <- s.page.Run(ctx) }()
	server := &http.Server{Handler: s.page.Handler(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)}
	go server.Serve(s.pipes)
	t.Cleanup(func() {
		stop()
		server.Close()
	})
	synctest.Wait()
	return s
}

// open requests a stream and returns the connection after the request is written.
func (s *served) open(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	mine, its := net.Pipe()
	t.Cleanup(func() { mine.Close() })
	s.pipes.accept <- its
	if _, err := io.WriteString(mine, "GET /debug/elections/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	return mine, bufio.NewReader(mine)
}

// events counts received events until the stream ends.
func events(in *bufio.Reader, n *atomic.Int32) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if strings.HasPrefix(line, "event: main") {
			n.Add(1)
		}
	}
}

func TestStreamFollowsChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed, validUntil := make(chan struct{}, 1), time.Now().Add(time.Hour)
		var transitions atomic.Int32
		s := serve(t, Config{Changed: changed, Source: func() State {
			state := sample()
			for i := range state.Elections { // the end of validity is constant
				state.Elections[i].Process.ValidUntil = validUntil
			}
			state.Elections[0].Transitions = int(transitions.Load())
			return state
		}})
		var n atomic.Int32
		_, in := s.open(t)
		go events(in, &n)
		synctest.Wait()
		if n.Load() != 1 {
			t.Fatalf("%d events on opening, want 1", n.Load())
		}
		time.Sleep(time.Second) // later changes are not merged with the first frame
		changed <- struct{}{}
		time.Sleep(100 * time.Millisecond)
		if n.Load() != 1 {
			t.Errorf("%d events without a change", n.Load())
		}
		transitions.Add(1)
		changed <- struct{}{}
		synctest.Wait()
		if n.Load() != 2 {
			t.Errorf("%d events after a change, want 2", n.Load())
		}
		for range 1000 { // one change per millisecond
			transitions.Add(1)
			select {
			case changed <- struct{}{}:
			default:
			}
			time.Sleep(time.Millisecond)
		}
		if got := n.Load() - 2; got < 18 || got > 21 {
			t.Errorf("%d events in a second of changes, want about 20", got)
		}
		time.Sleep(time.Minute)
		if got := n.Load(); got < 30 || got > 36 {
			t.Errorf("%d events after an idle minute, want one each 5 s", got)
		}
		s.stop()
		synctest.Wait()
		if err := <-s.stopped; err != nil {
			t.Error(err)
		}
		if err := s.page.Run(t.Context()); !errors.Is(err, errAgain) {
			t.Errorf("a second Run: %v", err)
		}
	})
}

func TestSlowClientIsDisconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Config{})
		const others = maxStreams - 1
		for range others {
			s.page.streams <- struct{}{}
		}
		s.open(t) // does not read
		synctest.Wait()
		if len(s.page.streams) != maxStreams {
			t.Fatal("no stream")
		}
		if w := ask(s.page, "GET", "localhost", Path+"/events"); w.Code != 503 || !strings.Contains(w.Body.String(), "Too many pages") {
			t.Errorf("beyond maxStreams: %d %s", w.Code, w.Body)
		}
		time.Sleep(writeTimeout + time.Second)
		if len(s.page.streams) != others {
			t.Error("the slow client still has a stream")
		}
		for range others {
			<-s.page.streams
		}
	})
}

func TestRunEndsStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Config{})
		s.open(t) // a write hangs
		var n atomic.Int32
		_, in := s.open(t)
		go events(in, &n)
		synctest.Wait()
		began := time.Now()
		s.stop()
		if err := <-s.stopped; err != nil || time.Since(began) > 0 {
			t.Errorf("Run ended after %v: %v", time.Since(began), err)
		}
		if w := ask(s.page, "GET", "localhost", Path+"/events"); w.Code != 503 {
			t.Errorf("a stream after the end: %d", w.Code)
		}
	})
}

func TestRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, Config{})
		past := []Change{{At: time.Now().Add(-time.Minute), Leader: "former", Key: "old", Acting: true}}
		harness.Must(t, s.page.Record(t.Context(), sample().Elections[0], past))
		synctest.Wait()
		if w := ask(s.page, "GET", "localhost", Path); !strings.Contains(w.Body.String(), "former (old)") {
			t.Error("the recorded change is not shown")
		}
		s.stop()
		<-s.stopped
		if err := s.page.Record(t.Context(), sample().Elections[0], past); !errors.Is(err, errEnded) {
			t.Errorf("Record after the end: %v", err)
		}
		idle := New(Config{Source: sample})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := idle.Record(ctx, sample().Elections[0], past); !errors.Is(err, context.Canceled) {
			t.Errorf("Record before Run: %v", err)
		}
	})
}

func TestFrameDiffers(t *testing.T) {
	h := newHistory(8)
	old := frameOf(after(0), sample(), h)
	for what, change := range map[string]func(*State){
		"default":    func(s *State) { s.Default.Revision = "canary" },
		"leader":     func(s *State) { s.Elections[0].Holder = "b" },
		"candidates": func(s *State) { s.Elections[1].Candidates = s.Elections[0].Candidates },
		"renewal":    func(s *State) { s.Elections[0].Process.ValidFor += time.Second },
		"fewer":      func(s *State) { s.Elections = s.Elections[1:] },
	} {
		s := sample()
		change(&s)
		if !frameOf(after(0), s, h).differs(old) {
			t.Errorf("%s: no difference", what)
		}
	}
	for left, renewed := range map[time.Duration]bool{10 * time.Second: false, 10200 * time.Millisecond: false, 9800 * time.Millisecond: false, 10400 * time.Millisecond: true} {
		s := sample()
		s.Elections[0].Process.ValidFor = left // two seconds after 12 s were left
		f := frameOf(after(2), s, h)
		f.deadlines = deadlines(s, old)
		if f.differs(old) != renewed {
			t.Errorf("%v left: a difference is %v", left, !renewed)
		}
	}
	s := sample()
	s.Elections[0].Name = "another"
	s.Elections[0].Process.ValidUntil = after(2).Add(10200 * time.Millisecond)
	if got := deadlines(s, old)[0]; !got.Equal(s.Elections[0].Process.ValidUntil) {
		t.Errorf("another election's validity ends at %v", got)
	}
}
