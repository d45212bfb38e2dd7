package node_test

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"incumbent.dev/incumbent/tests/cluster/node"
)

// A stopping node waits until the processes of its Pods have ended, but not for their grace periods.
func TestNodeStop_EndsProcesses(t *testing.T) {
	var pod node.Pod
	var stopped time.Time
	t.Run("node", func(t *testing.T) {
		w := newWorld(t, func(o *node.Options) { o.StopGrace = 3 * time.Second })
		w.create("stubborn", podSpec("stubborn"))
		w.ready(1)
		pod = w.node.Pods()[0]
		stopped = time.Now()
	})
	if took := time.Since(stopped); took > bound {
		t.Errorf("the node stopped after %v: it waited for the grace period of two minutes", took)
	}
	if err := syscall.Kill(pod.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d of Pod %s still exists: %v", pod.PID, pod.Name, err)
	}
}
