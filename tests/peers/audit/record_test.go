package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/audit"
)

var recording = flag.Bool("record", false, "write the audit log to testdata of internal/audit")

const recorded = "../../../internal/audit/testdata/peers.log.gz"

// record keeps the events of the elections without the fields that no judgement needs.
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
	lines, encoder := bufio.NewScanner(bytes.NewReader(log)), json.NewEncoder(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e audit.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(e.ObjectRef.Namespace, "testpeers-") {
			continue
		}
		e.AuditID, _, _ = strings.Cut(e.AuditID, "-")
		e.RequestURI = ""
		e.RequestObject = trimmed(t, e.RequestObject)
		e.ResponseObject = trimmed(t, e.ResponseObject)
		if err := encoder.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recorded, packed.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// trimmed removes the fields of an object that no judgement needs.
func trimmed(t *testing.T, object json.RawMessage) json.RawMessage {
	t.Helper()
	var kept struct {
		metav1.PartialObjectMetadata
		Spec json.RawMessage `json:"spec,omitempty"`
	}
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	if err := json.Unmarshal(object, &kept); err != nil {
		t.Fatal(err)
	}
	kept.ManagedFields = nil
	encoded, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	return encoded
}
