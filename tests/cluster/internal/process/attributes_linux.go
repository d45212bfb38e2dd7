package process

import "syscall"

// attributes sets a process group, and SIGKILL when the forking thread ends.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
