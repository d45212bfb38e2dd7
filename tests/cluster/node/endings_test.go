package node_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"incumbent.dev/incumbent/tests/cluster/node"
)

// gone reports whether the process does not exist.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// A stopping node waits until the processes of its Pods have ended, but not for their grace periods.
func TestNodeStop_EndsProcesses(t *testing.T) {
	w := newWorld(t, func(o *node.Options) {
		o.StopGrace = 3 * time.Second
	})
	stubborn := podSpec("stubborn")
	grace := int64(600)
	stubborn.TerminationGracePeriodSeconds = &grace
	w.create("stubborn", stubborn)
	w.ready(1)
	pods := w.node.Pods()
	ended := make(chan error, 1)
	go func() { ended <- w.stop() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(bound):
		t.Fatal("the node waits for a grace period of ten minutes")
	}
	for _, pod := range pods {
		if !gone(pod.PID) {
			t.Errorf("process of Pod %s still exists", pod.Name)
		}
	}
}
