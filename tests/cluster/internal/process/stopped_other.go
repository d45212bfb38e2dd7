//go:build !linux

package process

// stopped is not supported on this system.
func (p *Process) stopped() (bool, error) { return true, nil }
