package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// wire is a connection without data that records whether it was closed.
type wire struct {
	net.Conn
	closed int
}

var errClosing = errors.New("closing failed")

func (w *wire) Close() error {
	w.closed++
	return errClosing
}

func TestGeneration_ClosesUnused(t *testing.T) {
	p := &pool{like: fixed{&http.Transport{}}}
	g := p.take(false)
	if again := p.take(false); again != g {
		t.Fatal("two generations of the same settings")
	}
	g.leave()
	one, two, three := &wire{}, &wire{}, &wire{}
	opened := func(g *generation, w *wire) *connection {
		c := &connection{Conn: w}
		g.adopt(c)
		return c
	}
	first := opened(g, one)
	opened(g, two)
	g.leave()
	if one.closed+two.closed != 0 {
		t.Error("closed while it was not out of use")
	}
	p.take(false)
	p.retire(g)
	if one.closed+two.closed != 0 {
		t.Error("closed while a request used it")
	}
	if err := first.Close(); !errors.Is(err, errClosing) || one.closed != 1 {
		t.Errorf("closed %d times: %v", one.closed, err)
	}
	opened(g, three)
	if three.closed != 0 {
		t.Error("a connection during a request waits for it is closed")
	}
	next := p.take(false)
	if next == g {
		t.Fatal("a retired generation is used")
	}
	p.retire(g) // a second time, by another request
	if p.take(false) != next {
		t.Error("the next generation was retired with the previous generation")
	}
	g.leave()
	if one.closed != 1 || two.closed != 1 || three.closed != 1 {
		t.Errorf("closed %d, %d and %d times", one.closed, two.closed, three.closed)
	}
	late := &wire{}
	if opened(g, late); late.closed != 1 {
		t.Error("an unused late connection stays open")
	}
	idle := &wire{}
	opened(next, idle)
	next.leave()
	next.leave()
	if idle.closed != 0 {
		t.Error("closed while it is in use by the next request")
	}
	p.retire(next)
	if idle.closed != 1 {
		t.Error("a retired unused connection stays open")
	}
}

// refreshing is a model that counts calls of refresh.
type refreshing struct {
	fixed
	n int
}

func (r *refreshing) refresh(context.Context) { r.n++ }

func TestGeneration_Settings(t *testing.T) {
	h2 := map[string]func(string, *tls.Conn) http.RoundTripper{"h2": nil}
	for name, test := range map[string]struct {
		like  *http.Transport
		http2 bool
	}{
		"as client-go sets it up": {&http.Transport{TLSNextProto: h2}, true},
		"as a user does":          {&http.Transport{ForceAttemptHTTP2: true}, true},
		"without HTTP/2":          {&http.Transport{TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}, false},
	} {
		g := (&pool{}).generation(test.like)
		if g.ForceAttemptHTTP2 != test.http2 || g.TLSNextProto != nil {
			t.Errorf("%s: HTTP/2 is %v, %v", name, g.ForceAttemptHTTP2, g.TLSNextProto)
		}
	}
	like := &http.Transport{}
	for _, streams := range []bool{false, true} {
		g := (&pool{streams: streams}).generation(like)
		if g.HTTP2.SendPingTimeout != 3*time.Second || g.HTTP2.PingTimeout != 8*time.Second || g.HTTP2.WriteByteTimeout != 10*time.Second {
			t.Errorf("signs of life are asked for so: %+v", g.HTTP2)
		}
		want := time.Duration(0)
		if streams {
			want = 30 * time.Second
		}
		if g.ResponseHeaderTimeout != want || like.ResponseHeaderTimeout != 0 {
			t.Errorf("streams %v: an answer may begin after %v", streams, g.ResponseHeaderTimeout)
		}
	}
	if c := newConnections(like); c.calls.streams || !c.streams.streams {
		t.Error("calls are streams, or streams calls")
	}
	if d := newDialer(); d.Timeout != 30*time.Second || d.KeepAlive != 30*time.Second {
		t.Errorf("the dialer is %+v", d)
	}
}

func TestGeneration_RefreshesBeforeDial(t *testing.T) {
	synctest.Test(t, refreshesBeforeDial)
	// Without a custom dialer the default dialer is used.
	g := (&pool{like: fixed{&http.Transport{}}}).take(false)
	if _, err := g.DialContext(t.Context(), "tcp", "127.0.0.1:1"); err == nil {
		t.Error("port 1 answers")
	}
}

func refreshesBeforeDial(t *testing.T) {
	refused := errors.New("refused")
	conn := &wire{}
	var answer error
	model := &refreshing{fixed: fixed{&http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if answer != nil {
			return nil, answer
		}
		return conn, nil
	}}}}
	p := &pool{like: model}
	g := p.take(false)
	if got, err := g.DialContext(t.Context(), "tcp", "a:1"); err != nil || got.(*connection).Conn != conn || len(g.open) != 1 {
		t.Errorf("dialed %v, %v; %d open", got, err, len(g.open))
	}
	answer = refused
	if got, err := g.DialContext(t.Context(), "tcp", "a:1"); !errors.Is(err, refused) || got != nil {
		t.Errorf("dialed %v, %v", got, err)
	}
	if model.n != 2 {
		t.Errorf("looked %d times", model.n)
	}
}

// stubbed returns a pool whose transport is a function.
func stubbed(send roundTripper) *pool {
	like := &http.Transport{}
	g := &generation{Transport: &http.Transport{}, like: like, open: map[*connection]struct{}{}}
	g.RegisterProtocol("stub", send)
	return &pool{like: fixed{like}, present: g}
}

func stubRequest(ctx context.Context, t *testing.T, method string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, "stub://a", body)
	harness.Must(t, err)
	return req
}

func gotConn(req *http.Request) {
	httptrace.ContextClientTrace(req.Context()).GotConn(httptrace.GotConnInfo{})
}

// timeoutError is an error like the timeout errors of net and net/http.
type timeoutError struct{ is bool }

func (timeoutError) Error() string   { return "i/o timeout" }
func (e timeoutError) Timeout() bool { return e.is }
func (timeoutError) Temporary() bool { return false }

// content is the body of a response.
type content struct {
	err    error
	closed int
}

func (c *content) Read([]byte) (int, error) { return 0, c.err }

func (c *content) Close() error {
	c.closed++
	return errClosing
}

// A request leaves its generation when it fails, or when its response was read.
func TestRoundTrip_EndsWithResponse(t *testing.T) {
	var answer *http.Response
	p := stubbed(func(req *http.Request) (*http.Response, error) {
		gotConn(req)
		if answer == nil {
			return nil, errRecorded
		}
		return answer, nil
	})
	g := p.present
	if _, err := p.roundTrip(stubRequest(t.Context(), t, http.MethodGet, nil)); !errors.Is(err, errRecorded) || g.used != 0 {
		t.Errorf("after a failure: in use %d times, error %v", g.used, err)
	}
	text := &content{err: io.EOF}
	answer = &http.Response{StatusCode: http.StatusOK, Body: text}
	resp, err := p.roundTrip(stubRequest(t.Context(), t, http.MethodGet, nil))
	harness.Must(t, err)
	if _, err := resp.Body.Read(nil); err != io.EOF || g.used != 1 {
		t.Errorf("before the response is closed: in use %d times, error %v", g.used, err)
	}
	if err := resp.Body.Close(); !errors.Is(err, errClosing) || text.closed != 1 {
		t.Errorf("closed %d times: %v", text.closed, err)
	}
	_ = resp.Body.Close()
	if g.used != 0 || p.present != g {
		t.Errorf("after the response: in use %d times, retired %v", g.used, p.present != g)
	}
	// A switched connection belongs to the caller.
	answer = &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: text}
	if resp, err := p.roundTrip(stubRequest(t.Context(), t, http.MethodGet, nil)); err != nil || resp.Body != text {
		t.Errorf("%T, %v", resp.Body, err)
	}
}

// A response that times out retires the connection. A response that ends does not.
func TestBody_Read(t *testing.T) {
	for name, test := range map[string]struct {
		read    error
		late    bool // the caller's deadline has passed
		retired bool
	}{
		"its end":                      {read: io.EOF},
		"its end, after the deadline":  {read: io.EOF, late: true},
		"nothing more":                 {read: nil, late: true},
		"a time-out":                   {read: timeoutError{true}, retired: true},
		"a failure":                    {read: io.ErrUnexpectedEOF},
		"a failure after the deadline": {read: io.ErrUnexpectedEOF, late: true, retired: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			p := stubbed(func(req *http.Request) (*http.Response, error) {
				gotConn(req)
				return &http.Response{StatusCode: http.StatusOK, Body: &content{err: test.read}}, nil
			})
			resp, err := p.roundTrip(stubRequest(ctx, t, http.MethodGet, nil))
			harness.Must(t, err)
			if test.late {
				<-ctx.Done()
			}
			if _, err := resp.Body.Read(nil); err != test.read {
				t.Errorf("%s: read %v", name, err)
			}
			if retired := p.present == nil; retired != test.retired {
				t.Errorf("%s: retired %v", name, retired)
			}
			_ = resp.Body.Close()
		})
	}
}

// A generation is retired if a request on it timed out or was overtaken. The spare generation follows it.
func TestRoundTrip_Retires(t *testing.T) {
	overtaken, overtake := context.WithCancelCause(t.Context())
	overtake(apirequest.ErrOvertaken)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx       context.Context
		connected bool
		retired   bool
	}{
		"overtaken":                      {overtaken, true, true},
		"overtaken without a connection": {overtaken, false, false},
		"cancelled":                      {cancelled, true, false},
	} {
		p := stubbed(func(req *http.Request) (*http.Response, error) {
			if test.connected {
				gotConn(req)
			}
			return nil, req.Context().Err()
		})
		first, spare := p.present, p.take(true)
		if spare == first || p.take(true) != spare || p.take(false) != first {
			t.Fatal("the first and the second attempt of a request use one generation")
		}
		if _, err := p.roundTrip(stubRequest(test.ctx, t, http.MethodGet, nil)); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		want := first
		if test.retired {
			want = spare
		}
		if p.take(false) != want || first.retired != test.retired || spare.retired {
			t.Errorf("%s: retired %v, the spare %v", name, first.retired, spare.retired)
		}
		p.retire(spare)
		if !spare.retired || p.take(true) == spare {
			t.Errorf("%s: a retired spare is used", name)
		}
	}
}

// A spare generation that was not used for a while is not used again.
func TestTake_OldSpare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pool{like: fixed{&http.Transport{}}}
		spare := p.take(true)
		time.Sleep(spareTime)
		if p.take(true) != spare {
			t.Error("a young spare is not used")
		}
		time.Sleep(spareTime + 1)
		if p.take(true) == spare || !spare.retired {
			t.Error("an old spare is used")
		}
	})
}

// Connections with the settings of before are not used after client-go has replaced them.
func TestTake_NewSettings(t *testing.T) {
	model := &replaced{like: &http.Transport{}}
	p := &pool{like: model}
	present, spare := p.take(false), p.take(true)
	before := p.to(target{like: model.like}, present)
	model.like = &http.Transport{}
	if p.take(true) == spare || p.take(false) == present || !spare.retired || !present.retired {
		t.Error("a generation has the settings of before")
	}
	old := p.to(target{like: present.like}, present) // a request that began before
	if next := p.to(target{like: model.like}, p.present); next == before || next == old {
		t.Error("a set-up has the settings of before")
	}
}

// replaced is a model whose settings change.
type replaced struct{ like *http.Transport }

func (r *replaced) settings() *http.Transport { return r.like }
func (*replaced) refresh(context.Context)     {}
