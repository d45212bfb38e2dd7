//go:build !linux

package process

import "syscall"

// attributes gives the child a process group. Only the lifeline ends it with its
// starter here.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
