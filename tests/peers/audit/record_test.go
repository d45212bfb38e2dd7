package audit

import (
	"bytes"
	"compress/gzip"
	"flag"
	"os"
	"testing"
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
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if bytes.Contains(line, []byte(`"namespace":"testpeers-`)) {
			_, _ = out.Write(line) // Close returns the error
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recorded, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
