package gatewaystatus

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	versioned "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"
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

func TestNew_Errors(t *testing.T) {
	s := newStub(t)
	none := errors.New("no client")
	config := Config{Tags: s, Logger: slog.New(slog.DiscardHandler)}
	if c, err := New(nil, config); err == nil || c != nil || !strings.Contains(err.Error(), "no client") {
		t.Errorf("without a client: %v, %v", c, err)
	}
	c, err := newController(s, config, func(*rest.Config) (versioned.GatewayV1Interface, error) { return nil, none })
	if c != nil || !errors.Is(err, none) || !strings.Contains(err.Error(), "create Gateway API client") {
		t.Errorf("%v, %v", c, err)
	}
}
