package kube

import (
	"bufio"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// A custom transport is used without changes. If it has connections, it closes them. A custom transport without connections is ignored without a log message.
func TestCloseIdleConnections_CustomTransport(t *testing.T) {
	var log harness.Log
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(&log, nil)))
	defer klog.ClearLogger()
	for name, test := range map[string]struct {
		transport func(*int) http.RoundTripper
		want      int
	}{
		"closes": {func(n *int) http.RoundTripper { return closer{n} }, 1},
		"wraps":  {func(n *int) http.RoundTripper { return wrapper{closer{n}} }, 1},
		"opaque": {func(*int) http.RoundTripper { return roundTripper(http.DefaultTransport.RoundTrip) }, 0},
	} {
		closed := 0
		c, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1", Transport: test.transport(&closed)})
		harness.Must(t, err)
		if c.RESTConfig().WrapTransport != nil {
			t.Errorf("%s: the client changes the custom transport", name)
		}
		if CloseIdleConnections(c); closed != test.want {
			t.Errorf("%s: closed %d times", name, closed)
		}
	}
	if text := log.String(); text != "" {
		t.Errorf("client-go logged: %s", text)
	}
}

type closer struct{ n *int }

func (closer) RoundTrip(*http.Request) (*http.Response, error) { return nil, errRecorded }

func (c closer) CloseIdleConnections() { *c.n++ }

type wrapper struct{ http.RoundTripper }

func (w wrapper) WrappedRoundTripper() http.RoundTripper { return w.RoundTripper }

// A closed connection is reset, so that the kernel discards bytes that it has not sent.
func TestConnection_ResetAtEnd(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	harness.Must(t, err)
	defer listener.Close()
	result := make(chan error, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				result <- err
				return
			}
			defer conn.Close()
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				continue // on a busy machine the client may open a connection that it does not use
			}
			_, _ = conn.Write([]byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))
			_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second)) // if the connection remains open
			_, err = conn.Read(make([]byte, 1))
			result <- err
			return
		}
	}()
	c, err := NewClient(&rest.Config{Host: "http://" + listener.Addr().String()}, WithOwnConnections())
	harness.Must(t, err)
	_, _ = c.Kube().CoreV1().Namespaces().Get(t.Context(), "a", metav1.GetOptions{})
	CloseIdleConnections(c)
	if err := <-result; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server read %v, want a reset", err)
	}
}
