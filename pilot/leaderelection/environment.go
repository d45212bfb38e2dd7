package leaderelection

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// Environment variables that istiod's constructors read. pkg/features registers the same names and
// defaults, and a test compares the two. This package does not import pkg/features, because that
// imports istio.io/pkg/log, which redirects the logging of the program.
const (
	envEnable        = "ENABLE_LEADER_ELECTION"
	envLeaseDuration = "LEADER_ELECTION_LEASE_DURATION"
	envRenewDeadline = "LEADER_ELECTION_RENEW_DEADLINE"
	envRetryPeriod   = "LEADER_ELECTION_RETRY_PERIOD"
)

// fromEnvironment returns c with the values of the environment. An empty variable counts as not set.
// The error names every variable with an invalid value.
func (c Config) fromEnvironment() (Config, error) {
	var errs []error
	c.Disabled = false
	if value := os.Getenv(envEnable); value != "" {
		enabled, err := strconv.ParseBool(value)
		if err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s=%q: give true or false", envEnable, value))
		}
		c.Disabled = err == nil && !enabled
	}
	for _, v := range []struct {
		name string
		to   *time.Duration
	}{
		{envLeaseDuration, &c.LeaseDuration}, {envRenewDeadline, &c.RenewDeadline}, {envRetryPeriod, &c.RetryPeriod},
	} {
		value := os.Getenv(v.name)
		if value == "" {
			continue
		}
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			errs = append(errs, fmt.Errorf("environment variable %s=%q: give a positive duration with its unit, such as 30s", v.name, value))
			continue
		}
		*v.to = d
	}
	return c, errors.Join(errs...)
}
