//go:build !linux

package process

import "syscall"

// attributes sets a process group. On this system the process outlives a killed starter.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
