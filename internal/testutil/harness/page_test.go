package harness

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/metrics":
			fmt.Fprint(w, "# HELP up x\nupper 3\nup{name=\"a\"} 1\nup{name=\"b\"} 2\nplain 4\n")
		case "/cut":
			w.Header().Set("Content-Length", "9")
			fmt.Fprint(w, "cut")
		default:
			w.WriteHeader(http.StatusTeapot)
			fmt.Fprint(w, req.URL.Path)
		}
	}))
	address := strings.TrimPrefix(server.URL, "http://")
	if status, text := Page(t, address, "/tea"); status != http.StatusTeapot || text != "/tea" {
		t.Errorf("%d, %q", status, text)
	}
	if status, text := Page(t, address, "/cut"); status != http.StatusOK || text != "cut" {
		t.Errorf("a server that ended: %d, %q", status, text)
	}
	for sample, want := range map[string]string{`up{name="b"}`: "2", "up": "1", "plain": "4", "pla": "", `up{name="c"}`: "", "none": ""} {
		if got := Metric(t, address, sample); got != want {
			t.Errorf("%s is %q, want %q", sample, got, want)
		}
	}
	server.Close()
	for _, nowhere := range []string{address, "", "%"} {
		if status, text := Page(t, nowhere, "/"); status != 0 || text != "" {
			t.Errorf("%q answers %d, %q", nowhere, status, text)
		}
	}
}
