package debug

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Config is what a Page needs to know.
type Config struct {
	// Source returns the present elections. It is called by one goroutine at a time, at most
	// 20 times a second, and must not block.
	Source func() State
	// Changed is received from whenever the elections may have changed. A channel of capacity 1,
	// which the sender skips when it is full, loses nothing. Nil: the page looks every Idle.
	Changed <-chan struct{}
	// Address is what the page's listener listens on. Its host is answered, beside localhost and
	// loopback addresses; without a host (":15016", "0.0.0.0:15016") any address, but no name.
	Address string
	// Hosts are further names and addresses, without port, that the page answers.
	Hosts []string
	// Log hears of what readers did wrong, at level debug; nil: nobody does.
	Log *slog.Logger
	// Now is the clock for history and the timeline; nil: time.Now.
	Now func() time.Time
	// Idle is after how long the page looks, and publishes, although nothing was said to have
	// changed: the timeline moves on, and dead connections are found. 0: 5 seconds.
	Idle time.Duration
	// MaxStreams bounds the pages that are open at the same time; 0: 128.
	MaxStreams int
	// MaxHistory bounds the changes that are remembered of each election; the oldest go first.
	// 0: 512.
	MaxHistory int
	// WriteTimeout is how long one frame may take to reach a reader, before the reader is dropped.
	// 0: 5 seconds.
	WriteTimeout time.Duration
}

// Validate says what is wrong with the configuration.
func (c Config) Validate() error {
	var errs []error
	if c.Source == nil {
		errs = append(errs, errors.New("debug: Source is missing: the page has nothing to show without it"))
	}
	if c.Address != "" {
		if _, _, err := net.SplitHostPort(c.Address); err != nil {
			errs = append(errs, fmt.Errorf("debug: Address %q: %w; give host:port, such as 127.0.0.1:15016", c.Address, err))
		}
	}
	if c.Idle < 0 || c.WriteTimeout < 0 || c.MaxStreams < 0 || c.MaxHistory < 0 {
		errs = append(errs, errors.New("debug: Idle, WriteTimeout, MaxStreams and MaxHistory may not be negative; 0 is the default"))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Idle = orElse(c.Idle, 5*time.Second)
	c.WriteTimeout = orElse(c.WriteTimeout, 5*time.Second)
	c.MaxStreams = orElse(c.MaxStreams, 128)
	c.MaxHistory = orElse(c.MaxHistory, 512)
	return c
}

func orElse[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}
