package environment

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Variables of an election.
const (
	EnableLeaderElection = "ENABLE_LEADER_ELECTION"
	LeaseDuration        = "LEADER_ELECTION_LEASE_DURATION"
	RenewDeadline        = "LEADER_ELECTION_RENEW_DEADLINE"
	RetryPeriod          = "LEADER_ELECTION_RETRY_PERIOD"
)

// Defaults of the timing of an election.
const (
	DefaultLeaseDuration = 30 * time.Second
	DefaultRenewDeadline = 15 * time.Second
	DefaultRetryPeriod   = 7500 * time.Millisecond
)

// Reader reads variables and collects errors. An empty variable counts as not set.
type Reader struct{ errs []error }

// Bool returns the value of a variable, or fallback if it is not set or invalid.
func (r *Reader) Bool(name string, fallback bool) bool {
	value := os.Getenv(name)
	if value == "" {
		return fallback
	}
	b, err := strconv.ParseBool(value)
	if err != nil {
		r.Wrong(name, value, "give true or false")
		return fallback
	}
	return b
}

// Duration returns the value of a variable, or fallback if it is not set or invalid.
func (r *Reader) Duration(name string, fallback time.Duration) time.Duration {
	value := os.Getenv(name)
	if value == "" {
		return fallback
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		r.Wrong(name, value, "give a positive duration with its unit, such as 30s")
		return fallback
	}
	return d
}

// Wrong adds an error for a variable.
func (r *Reader) Wrong(name, value, advice string) {
	r.errs = append(r.errs, fmt.Errorf("environment variable %s=%q: %s", name, value, advice))
}

// Err returns an error that names every variable with an invalid value.
func (r *Reader) Err() error { return errors.Join(r.errs...) }
