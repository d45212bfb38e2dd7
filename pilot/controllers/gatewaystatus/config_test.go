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
	s := newStub(t)
	if c, err := New(s.Client, Config{Tags: s}); err != nil || c.config.Logger == nil {
		t.Errorf("no logger by default, error %v", err)
	}
	if given := slog.New(slog.DiscardHandler); (Config{Logger: given}).withDefaults().Logger != given {
		t.Error("configured logger is not used")
	}
}
