package gatewaystatus

import (
	"log/slog"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	if _, err := New(nil, Config{Workers: -1}); err == nil || !strings.Contains(err.Error(), "tag watcher") || !strings.Contains(err.Error(), "got -1") {
		t.Errorf("error is %v", err)
	}
	if got := (Config{}).withDefaults(); got.Logger == nil {
		t.Errorf("defaults are %+v", got)
	}
	if given := slog.New(slog.DiscardHandler); (Config{Logger: given}).withDefaults().Logger != given {
		t.Error("configured logger is not used")
	}
}
