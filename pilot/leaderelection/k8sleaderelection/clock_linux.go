package k8sleaderelection

import "golang.org/x/sys/unix"

// readBoottime reads CLOCK_BOOTTIME: like the monotonic clock, but it also counts the
// time that the machine was suspended.
func readBoottime() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}
