//go:build !linux

package k8sleaderelection

// readBoottime returns 0, because the platform has no such clock.
func readBoottime() int64 { return 0 }

// processAlarms returns nil, because the platform has no such alarms.
func processAlarms() bootAlarms { return nil }
