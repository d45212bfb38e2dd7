package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// stopped reports whether every thread of the process has stopped. A signal is sent before
// the threads that run have taken notice of it: a server may still answer meanwhile. The state
// is left for whoever else waits for the process (WNOWAIT).
func (p *Process) stopped() (bool, error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Pid(), &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("asking whether %s (process %d) has stopped: %w", p.name, p.Pid(), err)
		}
		return info.Signo != 0, nil
	}
}
