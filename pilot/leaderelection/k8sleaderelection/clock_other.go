//go:build !linux

package k8sleaderelection

// readBoottime has no equivalent here: a cover is measured without it.
func readBoottime() int64 { return 0 }

// processAlarms has no equivalent either.
func processAlarms() bootAlarms { return nil }
