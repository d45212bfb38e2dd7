package lifeline

import (
	"os"
	"syscall"
)

// The parent-death signal belongs to the forked thread, which is the main thread. Init functions run on it.
func init() {
	if _, given := os.LookupEnv(Variable); given {
		// If it fails, SIGKILL remains and still ends the program.
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGCONT), 0)
	}
}
