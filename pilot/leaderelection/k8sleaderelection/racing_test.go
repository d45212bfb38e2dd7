//go:build race

package k8sleaderelection_test

// racing: the race detector watches, and everything takes ten times as long.
const racing = true
