package node

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
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
	// TokenRefresh is the age at which the token of a Pod is replaced. Its lifetime is an hour. Default: 48 minutes.
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
	o.Name = cmp.Or(o.Name, "incumbent")
	o.TokenRefresh = cmp.Or(o.TokenRefresh, cluster.TokenLifetime*4/5)
	o.RestartDelay = cmp.Or(o.RestartDelay, time.Second)
	o.MaxRestartDelay = cmp.Or(o.MaxRestartDelay, 30*time.Second)
	o.StopGrace = cmp.Or(o.StopGrace, 5*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	return o
}

// published returns the address in the status of a Pod.
func (o Options) published(address string) string {
	if o.PodNetwork {
		return loopback.Published(address)
	}
	return address
}

// restartDelay returns the delay before the n-th consecutive restart, counted from 0.
func (o Options) restartDelay(n int) time.Duration {
	if n == 0 {
		return 0
	}
	delay := o.RestartDelay
	for range n - 1 {
		delay = min(2*delay, o.MaxRestartDelay)
	}
	return delay
}

// checked validates the options and makes paths independent of the working directory.
func (o Options) checked() (Options, error) {
	switch {
	case o.Config == nil:
		return o, errors.New("node options: Config is missing")
	case o.Dir == "":
		return o, errors.New("node options: Dir is missing")
	}
	var err error
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return o, fmt.Errorf("node options: Dir: %w", err)
	}
	o.Images = maps.Clone(o.Images)
	for image, path := range o.Images {
		if err := checkProgram(path); err != nil {
			return o, fmt.Errorf("node options: image %q: %w", image, err)
		}
		if o.Images[image], err = filepath.Abs(path); err != nil {
			return o, fmt.Errorf("node options: image %q: %w", image, err)
		}
	}
	return o, nil
}
