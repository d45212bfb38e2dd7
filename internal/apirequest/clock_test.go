package apirequest

import (
	"net/http"
	"testing"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// client-go logs a warning when it cancels a request of a transport that it cannot unwrap.
func TestServerClock_Unwrap(t *testing.T) {
	base := &http.Transport{}
	if w, ok := new(ServerClock).Wrap(base).(utilnet.RoundTripperWrapper); !ok || w.WrappedRoundTripper() != base {
		t.Error("client-go cannot unwrap the transport")
	}
}
