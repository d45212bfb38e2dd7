package gatewaystatus

import (
	"log/slog"
	"strings"
	"testing"
)

func TestConfig(t *testing.T) {
	if _, err := New(nil, Config{}); err == nil || !strings.Contains(err.Error(), "tag watcher") {
		t.Errorf("error is %v", err)
	}
	if got := (Config{}).withDefaults(); got.Logger == nil {
		t.Errorf("defaults are %+v", got)
	}
	if given := slog.New(slog.DiscardHandler); (Config{Logger: given}).withDefaults().Logger != given {
		t.Error("configured logger is not used")
	}
}
