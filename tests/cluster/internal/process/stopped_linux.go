package process

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// stopped reports whether every thread of the process has stopped. A server can respond until then. WNOWAIT keeps the
// state for other waits.
func (p *Process) stopped() (bool, error) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, p.Pid(), &info, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("get state of %s (process %d): %w", p.name, p.Pid(), err)
		}
		return info.Signo != 0, nil
	}
}
