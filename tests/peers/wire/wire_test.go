package wire

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// serve starts a server that responds "ok", and returns a client that uses the wire.
func serve(t *testing.T, w *Wire) func(context.Context) error {
	t.Helper()
	server := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(rw, "ok")
	}))
	t.Cleanup(server.Close)
	client, err := rest.HTTPClientFor(w.Config(&rest.Config{
		Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api/v1/namespaces/x/configmaps/y", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return err
	}
}

func TestRefused(t *testing.T) {
	w := New()
	ask := serve(t, w)
	if err := ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Set(Refused)
	if err := ask(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("refused: %v", err)
	}
	w.Set(Open)
	if err := ask(t.Context()); err != nil {
		t.Errorf("healed: %v", err)
	}
	if n := w.Counts()["get configmaps"]; n != 3 {
		t.Errorf("counted %d requests: %v", n, w.Counts())
	}
}

func TestSwallowed(t *testing.T) {
	w := New()
	ask := serve(t, w)
	if err := ask(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Set(Swallowed)
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := ask(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("swallowed: %v", err)
	}
	late := make(chan error, 1)
	go func() { late <- ask(t.Context()) }()
	select {
	case err := <-late:
		t.Fatalf("response through a cut wire: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	w.Set(Open)
	if err := <-late; err != nil {
		t.Errorf("healed: %v", err)
	}
}

func TestDescribe(t *testing.T) {
	for want, path := range map[string]string{
		"get leases":     "/apis/coordination.k8s.io/v1/namespaces/a/leases/b",
		"watch leases":   "/apis/coordination.k8s.io/v1/namespaces/a/leases?watch=true",
		"list webhooks":  "/apis/admissionregistration.k8s.io/v1/webhooks",
		"get nodes":      "/api/v1/nodes/n",
		"get namespaces": "/api/v1/namespaces/n",
	} {
		u, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(&http.Request{Method: http.MethodGet, URL: u}); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
	if got := describe(&http.Request{Method: http.MethodPut, URL: &url.URL{Path: "/api/v1/namespaces/x/configmaps/y"}}); got != "update configmaps" {
		t.Error(got)
	}
}
