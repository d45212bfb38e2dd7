package node

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster/internal/loopback"
)

// Options describe a node.
type Options struct {
	// Config is the client configuration. It needs admin permissions.
	Config *rest.Config
	// Dir is the folder for files and logs of Pods. It is created if needed, and remains.
	Dir string
	// Images maps images to programs. An absolute path is also an image.
	Images map[string]string
	// Name is the name of the Node. Default: "incumbent".
	Name string
	// TokenLifetime is the lifetime of a Pod's token, at least ten minutes. Default: an hour.
	TokenLifetime time.Duration
	// TokenRefresh is the age at which a token is replaced. Default: four fifths of its lifetime.
	TokenRefresh time.Duration
	// RestartDelay is the delay before the second consecutive restart. The first restart is immediate. Later delays
	// double up to MaxRestartDelay. A process that ran for MaxRestartDelay resets the delay. Default: 1 s and 30 s.
	RestartDelay, MaxRestartDelay time.Duration
	// StopGrace limits the grace periods when the node stops. Default: 5 s.
	StopGrace time.Duration
	// PodNetwork makes the status of a Pod show 10.x.y.z instead of its loopback address 127.x.y.z. EndpointSlices
	// allow no loopback addresses, so Services need this. Package balancer translates the address back.
	PodNetwork bool
	// BoundOnly restricts the node to Pods that name it. With several nodes, one of them runs the unscheduled Pods.
	BoundOnly bool
	// Logger logs events of Pods. Optional.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Name = orElse(o.Name, "incumbent")
	o.TokenLifetime = orElse(o.TokenLifetime, time.Hour)
	o.TokenRefresh = orElse(o.TokenRefresh, o.TokenLifetime*4/5)
	o.RestartDelay = orElse(o.RestartDelay, time.Second)
	o.MaxRestartDelay = orElse(o.MaxRestartDelay, 30*time.Second)
	o.StopGrace = orElse(o.StopGrace, 5*time.Second)
	o.Logger = orElse(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// published returns the address in the status of a Pod.
func (o Options) published(address string) string {
	if o.PodNetwork {
		return loopback.Published(address)
	}
	return address
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// minimalToken is the minimum of the API server.
const minimalToken = 10 * time.Minute

func (o Options) validate() error {
	switch {
	case o.Config == nil:
		return errors.New("node options: Config is missing")
	case o.Dir == "":
		return errors.New("node options: Dir is missing")
	case o.TokenLifetime < minimalToken:
		return fmt.Errorf("node options: TokenLifetime is %v, want at least %v", o.TokenLifetime, minimalToken)
	case o.TokenRefresh < 0 || o.TokenRefresh > o.TokenLifetime:
		return fmt.Errorf("node options: TokenRefresh %v is not within the lifetime of %v", o.TokenRefresh, o.TokenLifetime)
	case o.RestartDelay < 0 || o.MaxRestartDelay < o.RestartDelay:
		return fmt.Errorf("node options: RestartDelay %v is not between 0 and MaxRestartDelay %v", o.RestartDelay, o.MaxRestartDelay)
	case o.StopGrace < 0:
		return fmt.Errorf("node options: StopGrace %v is negative", o.StopGrace)
	}
	for image, path := range o.Images {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("node options: program of image %q: %w", image, err)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("node options: image %q: %s is not a program", image, path)
		}
	}
	return nil
}

// absolute makes paths independent of the working directory.
func (o Options) absolute() (Options, error) {
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, fmt.Errorf("node options: Dir: %w", err)
	}
	images := make(map[string]string, len(o.Images))
	for image, path := range o.Images {
		if images[image], err = filepath.Abs(path); err != nil {
			return o, fmt.Errorf("node options: image %q: %w", image, err)
		}
	}
	o.Images = images
	return o, nil
}
