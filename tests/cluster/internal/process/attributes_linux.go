package process

import "syscall"

// attributes gives the child a process group, and SIGKILL when the forking thread dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
