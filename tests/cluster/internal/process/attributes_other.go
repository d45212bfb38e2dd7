//go:build !linux

package process

import "syscall"

// attributes sets a process group. On this system only the lifeline ends the process.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
