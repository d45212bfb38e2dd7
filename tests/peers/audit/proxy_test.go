package audit

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/peers/wire"
)

// proxied returns a configuration whose connections go through a TCP proxy, and the wire behind the proxy. While the wire swallows,
// both ends get neither bytes nor an error. The bytes arrive later, as with TCP.
func proxied(t *testing.T, config *rest.Config) (*rest.Config, *wire.Wire) {
	t.Helper()
	server, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := wire.New()
	dial := w.Config(&rest.Config{}).Dial
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer client.Close()
				behind, err := dial(t.Context(), "tcp", server.Host)
				if err != nil {
					return
				}
				defer behind.Close()
				running.Go(func() {
					defer client.Close()
					_, _ = io.Copy(client, behind)
				})
				_, _ = io.Copy(behind, client)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		w.Set(wire.Refused)
		running.Wait()
	})
	through := rest.CopyConfig(config)
	through.Host = "https://" + listener.Addr().String()
	through.ServerName = server.Hostname()
	return through, w
}
