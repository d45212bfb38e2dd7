package lifeline

import (
	"os"
	"syscall"
)

// The signal at the parent's death belongs to the thread that was forked, which is
// the main thread. Initialization runs on it; main need not.
func init() {
	if _, given := os.LookupEnv(Variable); given {
		// Should it fail, SIGKILL stays: the program still ends.
		_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_PDEATHSIG, uintptr(syscall.SIGCONT), 0)
	}
}
