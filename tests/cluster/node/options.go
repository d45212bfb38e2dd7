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

// Options say what a node runs, and for which cluster.
type Options struct {
	// Config reaches the cluster; it may bind Pods, write their status, delete them,
	// request tokens, create Nodes and review access: an admin's.
	Config *rest.Config
	// Dir is a folder for the Pods' files and logs, made if need be. They stay after the
	// Pods are gone.
	Dir string
	// Images are the programs that images stand for. An image that is the absolute path
	// of a program stands for itself.
	Images map[string]string
	// Name is the Node's; empty means "incumbent".
	Name string
	// TokenLifetime is how long a Pod's token is good for; the API server takes no less
	// than ten minutes. Zero means an hour.
	TokenLifetime time.Duration
	// TokenRefresh is the age at which a token is replaced; zero means four fifths of its
	// lifetime.
	TokenRefresh time.Duration
	// RestartDelay is the wait before the second restart in a row; the first comes at
	// once, and each further one after twice as long, up to MaxRestartDelay. A process that
	// ran for MaxRestartDelay begins a new row. Zero means a second, and half a minute.
	RestartDelay, MaxRestartDelay time.Duration
	// StopGrace is the most that a Pod gets of its grace period when the node stops; zero
	// means five seconds.
	StopGrace time.Duration
	// PodNetwork has the status of Pods show 10.x.y.z for the loopback address 127.x.y.z that their process has, which
	// knows it as POD_IP and status.podIP. An API server takes no loopback addresses in EndpointSlices, so
	// Services need this; package balancer forwards to the one when it reads the other.
	PodNetwork bool
	// BoundOnly has it run the Pods alone that name it: where there are several nodes, one of them takes the others.
	BoundOnly bool
	// Logger hears of what happens to Pods; nil means nobody.
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

// published is the address that a Pod's status shows.
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

// minimalToken is the least that the API server grants.
const minimalToken = 10 * time.Minute

func (o Options) validate() error {
	switch {
	case o.Config == nil:
		return errors.New("node options: Config is missing")
	case o.Dir == "":
		return errors.New("node options: Dir is missing")
	case o.TokenLifetime < minimalToken:
		return fmt.Errorf("node options: TokenLifetime is %v, the API server grants no less than %v", o.TokenLifetime, minimalToken)
	case o.TokenRefresh < 0 || o.TokenRefresh > o.TokenLifetime:
		return fmt.Errorf("node options: TokenRefresh %v is not within the lifetime of %v", o.TokenRefresh, o.TokenLifetime)
	case o.RestartDelay < 0 || o.MaxRestartDelay < o.RestartDelay:
		return fmt.Errorf("node options: RestartDelay %v is not from 0 to MaxRestartDelay %v", o.RestartDelay, o.MaxRestartDelay)
	case o.StopGrace < 0:
		return fmt.Errorf("node options: StopGrace %v is negative", o.StopGrace)
	}
	for image, path := range o.Images {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("node options: the program of image %q: %w", image, err)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("node options: image %q stands for %s, which is no program", image, path)
		}
	}
	return nil
}

// absolute makes paths independent of the working directory: processes have another.
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
