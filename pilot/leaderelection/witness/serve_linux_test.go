package witness

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/waits"
)

// A client connects again only after the witness has closed its connection.
func TestServe_ClosesConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- Serve(ctx, path, Options{Logger: slog.New(slog.DiscardHandler)}) }()
		var conn net.Conn
		waits.Until(t, "the witness listens", func() (listens bool) {
			var err error
			conn, err = net.Dial("unixpacket", path)
			return err == nil
		})
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		_ = conn.SetReadDeadline(time.Now().Add(waits.Bound))
		if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			t.Fatal("after the end of the witness, a read returns", err)
		}
		_ = conn.Close()
	}
}
