//go:build !race

package k8sleaderelection_test

// racing: the race detector watches.
const racing = false
