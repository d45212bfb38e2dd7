package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/waits"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// served runs a proxy on its own address.
func served(t *testing.T, backend string, linger <-chan time.Time) (address string, stop func(), ended <-chan error) {
	t.Helper()
	address = fmt.Sprintf("127.250.%d.%d", os.Getpid()>>8&0xff, os.Getpid()&0xff|1)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, address, "8080,9090", backend, patience, func() <-chan time.Time { return linger })
	}()
	t.Cleanup(stop)
	deadline := time.After(patience)
	for {
		code, _, err := ask(address, statusPort, readyPath)
		if code == http.StatusOK {
			return address, stop, done
		}
		select {
		case err := <-done:
			t.Fatal("it ended: ", err)
		case <-deadline:
			t.Fatal("it is not ready: ", code, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// ask sends one request on a new connection.
func ask(address, port, path string) (code int, body string, err error) {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport, Timeout: patience}).Get("http://" + net.JoinHostPort(address, port) + path)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

func TestRun_FinishesOpenRequests(t *testing.T) {
	arrived, answer := make(chan struct{}), make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			close(arrived)
			<-answer
		}
		fmt.Fprint(w, "for ", r.Header.Get("X-Forwarded-For"), " ", r.URL.Path)
	}))
	defer backend.Close()
	address, stop, ended := served(t, backend.URL, time.After(0))
	for _, port := range []string{"8080", "9090"} {
		if code, body, err := ask(address, port, "/a"); code != http.StatusOK || !strings.HasSuffix(body, " /a") || err != nil {
			t.Errorf("port %s answers %d %q, %v", port, code, body, err)
		}
	}
	if code, _, err := ask(address, statusPort, "/other"); code != http.StatusNotFound {
		t.Errorf("status port: %d, %v", code, err)
	}
	slow := make(chan string, 1)
	go func() {
		_, body, err := ask(address, "8080", "/slow")
		slow <- fmt.Sprint(body, err)
	}()
	<-arrived
	stop()
	waits.Until(t, "it reports that it drains", func() bool {
		code, _, _ := ask(address, statusPort, readyPath)
		return code == http.StatusServiceUnavailable
	})
	select {
	case err := <-ended:
		t.Fatal("it ended during a request: ", err)
	default:
	}
	close(answer)
	if body := <-slow; !strings.Contains(body, "/slow") || strings.Contains(body, "error") {
		t.Errorf("the open request got %q", body)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
