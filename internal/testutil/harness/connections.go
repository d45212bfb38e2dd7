package harness

import (
	"net"
	"net/http"
	"net/http/httptest"

	"go.uber.org/atomic"
)

// Connections returns the number of open connections of a server that is not started yet.
func Connections(s *httptest.Server) *atomic.Int32 {
	open := &atomic.Int32{}
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Inc()
		case http.StateClosed, http.StateHijacked:
			open.Dec()
		case http.StateActive, http.StateIdle:
		}
	}
	return open
}
