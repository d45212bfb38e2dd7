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
	g := p.take()
	if again := p.take(); again != g {
		t.Fatal("two generations of the same settings")
	}
	g.leave()
	one, two, three := &wire{}, &wire{}, &wire{}
	first := g.opened(one)
	g.opened(two)
	g.leave()
	if one.closed+two.closed != 0 {
		t.Error("closed while it was not out of use")
	}
	p.take()
	p.retire(g)
	if one.closed+two.closed != 0 {
		t.Error("closed while a request used it")
	}
	if err := first.Close(); !errors.Is(err, errClosing) || one.closed != 1 {
		t.Errorf("closed %d times: %v", one.closed, err)
	}
	g.opened(three)
	if three.closed != 0 {
		t.Error("a connection during a request waits for it is closed")
	}
	next := p.take()
	if next == g {
		t.Fatal("a retired generation is used")
	}
	p.retire(g) // a second time, by another request
	if p.take() != next {
		t.Error("the next generation went with the former one")
	}
	g.leave()
	if one.closed != 1 || two.closed != 1 || three.closed != 1 {
		t.Errorf("closed %d, %d and %d times", one.closed, two.closed, three.closed)
	}
	late := &wire{}
	if g.opened(late); late.closed != 1 {
		t.Error("an unused late connection stays open")
	}
	idle := &wire{}
	next.opened(idle)
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

func TestPool_NewSettings(t *testing.T) {
	model := &reloaded{}
	model.present.Store(&http.Transport{})
	p := &pool{like: model}
	old, conn := p.take(), &wire{}
	old.opened(conn)
	old.leave()
	model.present.Store(&http.Transport{})
	if p.take() == old || conn.closed != 1 {
		t.Errorf("closed %d times", conn.closed)
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
		if g.HTTP2.SendPingTimeout != 5*time.Second || g.HTTP2.PingTimeout != 5*time.Second || g.HTTP2.WriteByteTimeout != 10*time.Second {
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
	refused := errors.New("refused")
	conn := &wire{}
	var answer error
	model := &refreshing{fixed: fixed{&http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		if answer != nil {
			return nil, answer
		}
		return conn, nil
	}}}}
	g := (&pool{like: model}).generation(model.settings())
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
	// Without a custom dialer the default dialer is used.
	g = (&pool{like: fixed{&http.Transport{}}}).generation(&http.Transport{})
	if _, err := g.DialContext(t.Context(), "tcp", "127.0.0.1:1"); err == nil {
		t.Error("port 1 answers")
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
	if err != nil {
		t.Fatal(err)
	}
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

// An attempt leaves its generation when it fails, or when its response was read.
func TestTry_EndsWithResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sent context.Context
		var answer *http.Response
		p := stubbed(func(req *http.Request) (*http.Response, error) {
			sent = req.Context()
			gotConn(req)
			if answer == nil {
				return nil, errors.New("no")
			}
			return answer, nil
		})
		g := p.present
		if _, err := p.try(stubRequest(t.Context(), t, http.MethodGet, nil), time.Second); err == nil || err.Error() != "no" {
			t.Error(err)
		}
		if g.used != 0 || sent.Err() == nil {
			t.Errorf("after a failure: in use %d times, context %v", g.used, sent.Err())
		}
		text := &content{err: io.EOF}
		answer = &http.Response{StatusCode: http.StatusOK, Body: text}
		resp, err := p.try(stubRequest(t.Context(), t, http.MethodGet, nil), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if g.used != 1 || sent.Err() != nil {
			t.Errorf("while the answer is read: in use %d times, context %v", g.used, sent.Err())
		}
		if _, err := resp.Body.Read(nil); err != io.EOF {
			t.Error(err)
		}
		if err := resp.Body.Close(); !errors.Is(err, errClosing) || text.closed != 1 {
			t.Errorf("closed %d times: %v", text.closed, err)
		}
		_ = resp.Body.Close()
		if g.used != 0 || sent.Err() == nil || p.present != g {
			t.Errorf("after the answer: in use %d times, context %v, retired %v", g.used, sent.Err(), p.present != g)
		}
		// A switched connection belongs to the caller.
		answer = &http.Response{StatusCode: http.StatusSwitchingProtocols, Body: text}
		if resp, err := p.try(stubRequest(t.Context(), t, http.MethodGet, nil), 0); err != nil || resp.Body != text {
			t.Errorf("%T, %v", resp.Body, err)
		}
	})
}

// An attempt ends after its patience only if there is no connection yet. The patience does not limit the response.
func TestTry_Patience(t *testing.T) {
	for name, test := range map[string]struct {
		patience, connects, answers time.Duration // connects 0: never
		want                        error
		took                        time.Duration
	}{
		"no connection":            {patience: time.Second, answers: time.Hour, want: errSlowSetup, took: time.Second},
		"a connection in time":     {patience: time.Second, connects: time.Second / 2, answers: time.Hour, took: time.Hour},
		"no patience":              {answers: time.Hour, took: time.Hour},
		"an answer before its end": {patience: time.Second, answers: time.Second / 2, took: time.Second / 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent context.Context
				p := stubbed(func(req *http.Request) (*http.Response, error) {
					sent = req.Context()
					if test.connects > 0 {
						time.AfterFunc(test.connects, func() { gotConn(req) })
					}
					select {
					case <-time.After(test.answers):
						return &http.Response{StatusCode: http.StatusOK, Body: &content{}}, nil
					case <-sent.Done():
						return nil, context.Cause(sent)
					}
				})
				began := time.Now()
				resp, err := p.try(stubRequest(t.Context(), t, http.MethodGet, nil), test.patience)
				if !errors.Is(err, test.want) || time.Since(began) != test.took {
					t.Fatalf("after %v: %v; want %v after %v", time.Since(began), err, test.want, test.took)
				}
				if err == nil {
					time.Sleep(time.Hour)
					if sent.Err() != nil {
						t.Error("its patience ends the answer")
					}
					_ = resp.Body.Close()
				}
			})
		})
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
			resp, err := p.try(stubRequest(ctx, t, http.MethodGet, nil), 0)
			if err != nil {
				t.Fatal(err)
			}
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

func TestFailed(t *testing.T) {
	plain, why := errors.New("no"), errors.New("why")
	live, ended := t.Context(), func() context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(why)
		return ctx
	}()
	for name, test := range map[string]struct {
		caller  context.Context
		state   int32
		err     error
		want    error
		retired bool
	}{
		"connected, and a failure":         {live, connected, plain, plain, false},
		"connected, and a time-out":        {live, connected, timeoutError{true}, timeoutError{true}, true},
		"not connected, and a time-out":    {live, connecting, timeoutError{true}, timeoutError{true}, false},
		"given up":                         {live, expired, errSlowSetup, errSlowSetup, false},
		"given up, by its caller, too":     {ended, expired, errSlowSetup, why, false},
		"crossed":                          {live, crossed, plain, errCrossed, false},
		"crossed, and its caller's end":    {ended, crossed, plain, why, false},
		"connected, and its caller's end":  {ended, connected, plain, plain, false},
		"connecting, and its caller's end": {ended, connecting, plain, plain, false},
	} {
		p := stubbed(nil)
		g := p.present
		s := &setup{}
		s.state.Store(test.state)
		if err := p.failed(g, test.caller, s, test.err); err != test.want {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
		if retired := p.present == nil; retired != test.retired || g.retired != test.retired {
			t.Errorf("%s: retired %v, %v", name, retired, g.retired)
		}
	}
}
