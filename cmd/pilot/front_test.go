package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
)

// front stands before the API server, notes what is asked, and can hold requests up.
type front struct {
	server *httptest.Server
	// holds says which requests are not answered, and never get to the API server.
	holds func(*http.Request) bool
	// held gets a word for each of those.
	held chan struct{}
	// token is whose the requests are: a client sends none without TLS.
	token string

	mu  sync.Mutex
	all []asked
}

type asked struct {
	method, path string
	at           time.Time
}

func newFront(t *testing.T, holds func(*http.Request) bool) *front {
	t.Helper()
	admin := cluster.Shared(t).Admin()
	target, err := url.Parse(admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(admin))
	if err != nil {
		t.Fatal(err)
	}
	f := &front{holds: holds, held: make(chan struct{}, 1000)}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Set("Authorization", "Bearer "+f.token)
		},
		Transport: transport, FlushInterval: -1, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" { // which client-go limits nowhere
			f.mu.Lock()
			f.all = append(f.all, asked{r.Method, r.URL.Path, time.Now()})
			f.mu.Unlock()
		}
		if f.holds != nil && f.holds(r) {
			f.held <- struct{}{}
			_, _ = io.Copy(io.Discard, r.Body) // or the end of the connection would not be seen
			<-r.Context().Done()
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

// before is a configuration whose requests pass here.
func (f *front) before(config *rest.Config) *rest.Config {
	through := rest.CopyConfig(config)
	f.token = config.BearerToken
	through.Host, through.TLSClientConfig = f.server.URL, rest.TLSClientConfig{}
	return through
}

// asked is all that was asked for so far, watches aside.
func (f *front) asked() []asked {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.all)
}

// work is what was asked for by the controller, which the limit is for.
func (f *front) work(home string) (found []asked) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range f.all {
		if strings.HasSuffix(a.path, "/namespaces") || strings.HasSuffix(a.path, "/configmaps") && !strings.Contains(a.path, "/namespaces/"+home+"/") {
			found = append(found, a)
		}
	}
	return found
}

// writes are those of the bundle.
func isBundleWrite(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/configmaps")
}
