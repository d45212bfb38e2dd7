package bootstrap

import (
	"context"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/witness"
)

// Values of Config.WitnessMode.
const (
	// WitnessParent: the parent process, which Supervise starts.
	WitnessParent = "parent"
	// WitnessSocket: another container of the pod, with the socket WitnessSocket.
	WitnessSocket = "socket"
	// WitnessNone: none. The leases of an ended process expire.
	WitnessNone = "none"
)

func (c Config) validateWitness(wrong func(format string, args ...any)) {
	switch c.WitnessMode {
	case "", WitnessNone, WitnessParent:
		if c.WitnessSocket != "" {
			wrong("--witness-socket=%s has no effect: give --witness=socket too", c.WitnessSocket)
		}
	case WitnessSocket:
		if c.WitnessSocket == "" {
			wrong("--witness-socket is missing: give the path of the socket of `pilot witness`")
		}
	default:
		wrong("--witness=%q is not one of parent, socket, none", c.WitnessMode)
	}
}

// Supervise starts this program again as the child of its witness if WitnessMode is WitnessParent. In the parent it does not return.
// In the child, and with an invalid configuration, which New reports, it returns nil.
func Supervise(config Config) error {
	if config.WitnessMode != WitnessParent || config.Disabled || config.Validate() != nil || !witness.Supported {
		return nil
	}
	if client, err := witness.FromParent(); client != nil || err != nil {
		return err
	}
	return witness.Supervise(config.witnessOptions())
}

// ServeWitness is the witness of the server in another container, with a socket, until ctx ends.
func ServeWitness(ctx context.Context, config Config) error {
	return witness.Serve(ctx, config.WitnessSocket, config.witnessOptions())
}

func (c Config) witnessOptions() witness.Options {
	c = c.withDefaults()
	return witness.Options{Identity: c.Identity, Logger: c.Logger, Connect: func(cluster string) (*rest.Config, error) {
		if cluster == remoteLabel {
			return c.AtRemote().restConfig()
		}
		return c.restConfig()
	}}
}

// witnessClient returns the client of the witness. It is nil without a witness.
func (c Config) witnessClient() (*witness.Client, error) {
	switch c.WitnessMode {
	case WitnessParent:
		return witness.FromParent()
	case WitnessSocket:
		return witness.Dial(c.WitnessSocket, c.Logger), nil
	}
	return nil, nil
}

// witnessOf returns the witness of an election. A verified fence rejects writes that arrive after the release.
func (s *site) witnessOf(lock string) k8sleaderelection.Witness {
	if s.witness == nil {
		return nil
	}
	cluster := ""
	if s.config.Remote {
		cluster = remoteLabel
	}
	return s.witness.For(cluster, func() bool {
		state := s.fence.State(lock)
		return state != nil && state.InEffect
	})
}
