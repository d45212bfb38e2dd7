package node_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

// gone reports whether there is no such process any more.
func gone(pid int) bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// A node that stops does not return before its Pods' processes have ended, and does not wait for
// their own grace periods.
func TestANodeThatStopsEndsItsProcessesFirst(t *testing.T) {
	var connections open
	w := newWorld(t, func(o *node.Options) {
		o.StopGrace = 3 * time.Second
		o.Config = rest.CopyConfig(o.Config)
		o.Config.Dial = connections.dial
	})
	stubborn := podSpec("stubborn")
	grace := int64(600)
	stubborn.TerminationGracePeriodSeconds = &grace
	w.create("stubborn", stubborn)
	w.create("polite", podSpec())
	w.ready(2)
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
			t.Errorf("the process of Pod %s is still there", pod.Name)
		}
		log, err := os.ReadFile(pod.Log)
		if err != nil {
			t.Fatal(err)
		}
		if polite := pod.Name == "polite"; polite && !strings.Contains(string(log), "ended:") {
			t.Errorf("the polite one was not given time to end:\n%s", log)
		}
	}
	if connections.made.Load() == 0 {
		t.Error("it had no connections, which shows nothing")
	}
	w.until("its connections are closed", func(context.Context) (bool, error) { return connections.now.Load() == 0, nil })
}

// open counts connections.
type open struct{ made, now atomic.Int32 }

func (o *open) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	o.made.Add(1)
	o.now.Add(1)
	return &counted{Conn: c, closed: sync.OnceFunc(func() { o.now.Add(-1) })}, nil
}

// counted is a connection that tells of its end.
type counted struct {
	net.Conn
	closed func()
}

func (c *counted) Close() error {
	c.closed()
	return c.Conn.Close()
}

// A Pod's end that no watch has shown, because the API server was away, ends its process, too.
func TestAPodThatWentUnseenTakesItsProcess(t *testing.T) {
	w := newWorld(t, nil)
	w.create("stubborn", podSpec("stubborn"))
	w.ready(1)
	here, err := w.node.Pod(w.namespace, "stubborn")
	if err != nil {
		t.Fatal(err)
	}
	second, err := w.cluster.AddAPIServer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := cluster.ClientFor(t, second.Admin()).Kube()
	if err := w.cluster.APIServer().Kill(); err != nil {
		t.Fatal(err)
	}
	none := int64(0)
	deleted := elsewhere.CoreV1().Pods(w.namespace).Delete(t.Context(), "stubborn", metav1.DeleteOptions{GracePeriodSeconds: &none})
	// What it finds when it starts anew is all that it knows: the watch cannot be resumed.
	if err := errors.Join(deleted, w.cluster.APIServer().Start(t.Context()), second.Stop()); err != nil {
		t.Fatal(err)
	}
	w.until("its process is gone", func(context.Context) (bool, error) { return gone(here.PID), nil })
	w.ready(0)
}

func TestADeletionMayShortenTheGracePeriod(t *testing.T) {
	w := newWorld(t, nil)
	stubborn := podSpec("stubborn")
	grace := int64(600)
	stubborn.TerminationGracePeriodSeconds = &grace
	w.create("stubborn", stubborn)
	w.ready(1)
	w.kubectl("delete", "pod", "stubborn", "--grace-period=1", "--wait=false")
	w.ready(0) // within a bound far below the ten minutes
}

func TestPodsOfOthersAreLeftAlone(t *testing.T) {
	w := newWorld(t, nil)
	other := podSpec()
	other.SchedulerName = "example.com/other"
	w.create("other", other)
	w.create("ours", podSpec()) // which the node sees later
	w.until("ours is ready", func(context.Context) (bool, error) {
		pod, err := w.node.Pod(w.namespace, "ours")
		return err == nil && pod.Ready, nil
	})
	if pod, err := w.node.Pod(w.namespace, "other"); !errors.Is(err, node.ErrNoPod) {
		t.Errorf("the node runs %+v (%v), which another scheduler was asked to place", pod, err)
	}
}

// A Pod whose process answers that it is unwell is unready, and ready again when it is well.
func TestReadinessComesAndGoes(t *testing.T) {
	w := newWorld(t, nil)
	w.create("one", podSpec())
	ready := func(want corev1.ConditionStatus) {
		t.Helper()
		w.until("its condition is "+string(want), func(ctx context.Context) (bool, error) {
			pod, err := w.client.CoreV1().Pods(w.namespace).Get(ctx, "one", metav1.GetOptions{})
			return err == nil && isReady(*pod) == (want == corev1.ConditionTrue), err
		})
	}
	ready(corev1.ConditionTrue)
	if err := w.node.Signal(w.namespace, "one", syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	ready(corev1.ConditionFalse)
	if err := w.node.Signal(w.namespace, "one", syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	ready(corev1.ConditionTrue)
}
