package harness

import (
	"testing"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/internal/testutil/logs"
	"incumbent.dev/incumbent/internal/testutil/waits"
)

// Patience bounds every wait; none is expected to come near.
const Patience = waits.Bound

// Log is what is logged, to be read while it is written. Its zero value is empty.
type Log = logs.Buffer

// Until waits until something holds, and ends the test if it does not within Patience.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	waits.Until(t, what, holds)
}

// CA makes the certificate of a CA, as PEM. Each is another one.
func CA(t testing.TB) []byte {
	t.Helper()
	return certs.CA(t)
}

// KeyPair makes a self-signed certificate and its key, as PEM.
func KeyPair(t testing.TB) (certificate, private []byte) {
	t.Helper()
	return certs.KeyPair(t)
}
