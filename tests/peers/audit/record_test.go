package audit

import (
	"bytes"
	"compress/gzip"
	"flag"
	"os"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

var recording = flag.Bool("record", false, "write the audit log to testdata of internal/audit")

const recorded = "../../../internal/audit/testdata/peers.log.gz"

// record keeps the events of the elections.
func record(t *testing.T, log []byte) {
	t.Helper()
	if !*recording {
		return
	}
	var packed bytes.Buffer
	out, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	harness.Must(t, err)
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(`"namespace":"testpeers-`)) {
			_, _ = out.Write(line) // Close returns the error
		}
	}
	harness.Must(t, out.Close())
	harness.Must(t, os.WriteFile(recorded, packed.Bytes(), 0o644))
}
