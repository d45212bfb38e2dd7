package bootstrap

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	istiolog "istio.io/pkg/log"
)

func TestRecordsReachIstiosLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	options := istiolog.DefaultOptions()
	options.OutputPaths, options.JSONEncoding = []string{file}, true
	log := NewLogger()
	if err := istiolog.Configure(options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = istiolog.Configure(istiolog.DefaultOptions()) })
	child := log.With("election", "e").WithGroup("call").With("verb", "get")
	child.Warn("message", "took", 2*time.Second, "error", errors.New("no"), slog.Group("who", "id", 7), "names", []string{"a", "b"})
	log.Debug("not enabled")
	log.Info("unlabelled")
	log.Error("bad", "at", time.Unix(0, 0).UTC(), "yes", true)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	decoder := json.NewDecoder(bytes.NewReader(text))
	if err := decoder.Decode(&got); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]any{
		"level": "warn", "scope": "pilot", "msg": "message", "election": "e",
		"call.verb": "get", "call.took": "2s", "call.error": "no", "call.who.id": 7.0,
	} {
		if got[key] != want {
			t.Errorf("%s is %v, want %v", key, got[key], want)
		}
	}
	got = nil
	if err := decoder.Decode(&got); err != nil || got["msg"] != "unlabelled" || got["election"] != nil {
		t.Errorf("second line is %v, %v", got, err)
	}
	got = nil
	if err := decoder.Decode(&got); err != nil || got["level"] != "error" || got["msg"] != "bad" || got["yes"] != true || !strings.HasPrefix(fmt.Sprint(got["at"]), "1970-01-01") {
		t.Errorf("third line is %v, %v", got, err)
	}
	if decoder.More() {
		t.Error("a line at a level that is off was written")
	}
}
