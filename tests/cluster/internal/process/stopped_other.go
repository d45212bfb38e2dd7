//go:build !linux

package process

// stopped cannot be asked here: the signal is taken for the stop.
func (p *Process) stopped() (bool, error) { return true, nil }
