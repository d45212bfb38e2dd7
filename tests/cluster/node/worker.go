package node

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"go.uber.org/atomic"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/tests/cluster/internal/process"
)

// restartDelay is the delay before the second consecutive restart. Later delays double up to maxRestartDelay.
const restartDelay, maxRestartDelay = time.Second, 30 * time.Second

// worker runs one Pod. Its goroutine (run) does the steps in order, controlled by two contexts.
type worker struct {
	node            *Node
	logger          *slog.Logger
	namespace, name string
	uid             types.UID
	dir             string
	status          *statusWriter

	// exists ends when the object is gone or the node stops. wanted also ends when the object is being deleted.
	exists, wanted context.Context
	// running ends when the node stops. It distinguishes a stopping node from a deleted object.
	running        context.Context
	gone, unwanted context.CancelFunc

	latest atomic.Pointer[corev1.Pod]

	// The fields below are read by other goroutines.
	mu      sync.Mutex
	process *process.Process
	view    Pod
	// begins has the position in the log at which each process began.
	begins []int64
}

func (n *Node) newWorker(ctx context.Context, pod *corev1.Pod) *worker {
	w := &worker{
		node: n, namespace: pod.Namespace, name: pod.Name, uid: pod.UID,
		logger: n.options.Logger.With("pod", pod.Namespace+"/"+pod.Name),
		dir:    filepath.Join(n.options.Dir, fmt.Sprintf("%s_%s_%.8s", pod.Namespace, pod.Name, pod.UID)),
	}
	w.running = ctx
	w.exists, w.gone = context.WithCancel(ctx)
	w.wanted, w.unwanted = context.WithCancel(w.exists)
	w.view = Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Log: filepath.Join(w.dir, "log")}
	w.status = newStatusWriter(w)
	w.latest.Store(pod)
	return w
}

// update stores a newer version of the object.
func (w *worker) update(pod *corev1.Pod) {
	w.latest.Store(pod)
	if pod.DeletionTimestamp != nil {
		w.unwanted()
	}
}

// run runs the Pod from its binding to its end.
func (w *worker) run() {
	defer w.gone()
	var helpers sync.WaitGroup
	if w.bind() {
		helpers.Go(func() { w.status.run(w.exists) })
		w.runHere(&helpers)
	}
	// The binding may have succeeded without a response.
	if w.exists.Err() == nil && w.wanted.Err() != nil {
		w.deleteObject()
	}
	w.gone()
	helpers.Wait()
}

// runHere allocates the address, creates the files and runs the process.
func (w *worker) runHere(helpers *sync.WaitGroup) {
	address, err := w.node.addresses.Take()
	if err != nil {
		w.refuse("NoAddress", err)
		return
	}
	defer w.node.addresses.GiveBack(address)
	w.show(func(view *Pod) { view.Address = address })
	w.status.placed(address)
	start, err := w.plan(address)
	if err != nil {
		w.refuse("CreateContainerConfigError", err)
		return
	}
	if !w.setUp() {
		return
	}
	helpers.Go(w.keepToken)
	w.runProcesses(start, address)
}

// refuse reports why the Pod cannot run, and waits until it is deleted.
func (w *worker) refuse(reason string, err error) {
	w.logger.Warn("Pod cannot run", "reason", reason, "err", err)
	w.status.waiting(reason, err.Error())
	<-w.wanted.Done()
}

// runProcesses runs the process repeatedly. The first restart is immediate. A process that ran for maxRestartDelay resets the delay.
func (w *worker) runProcesses(start process.Spec, address string) {
	delay := time.Duration(0)
	backoff := apirequest.Backoff(restartDelay, maxRestartDelay)
	for w.wanted.Err() == nil {
		began := time.Now()
		state, err := w.runOnce(start, address)
		if w.wanted.Err() != nil {
			return
		}
		if time.Since(began) >= maxRestartDelay {
			delay = 0
			backoff = apirequest.Backoff(restartDelay, maxRestartDelay)
		}
		w.status.backOff(delay, err)
		w.logger.Info("process of Pod ended", "state", fmt.Sprint(state), "err", err, "restart", delay)
		if apirequest.Pause(w.wanted, delay) != nil {
			return
		}
		delay = backoff.Step()
		w.show(func(view *Pod) { view.Restarts++ })
	}
}

// runOnce starts the process and returns when it has ended: by itself, after failed liveness probes, or because the Pod
// is being deleted.
func (w *worker) runOnce(start process.Spec, address string) (*os.ProcessState, error) {
	w.began()
	p, err := process.Start(start)
	if err != nil {
		return nil, err
	}
	w.publish(p)
	defer w.publish(nil)
	w.status.running(p.Pid(), w.snapshot().Restarts)
	probing, stop := context.WithCancel(w.exists)
	var prober sync.WaitGroup
	prober.Go(func() { w.probe(probing, address) })
	dead := make(chan error, 1)
	prober.Go(func() { dead <- w.watchLife(probing, address) })
	select {
	case <-p.Done():
	case <-w.wanted.Done():
		err = w.terminate(p)
	case why := <-dead: // nil when the Pod is not wanted any more
		w.logger.Warn("liveness probe failed", "err", why)
		err = w.terminate(p)
	}
	stop()
	prober.Wait()
	if err != nil {
		w.logger.Error("failed to end process of Pod", "err", err)
		return nil, err
	}
	w.status.ended(p.State())
	return p.State(), nil
}

// terminate sends SIGTERM, and SIGKILL after the grace period. A stopping node shortens the period. A forced deletion
// has none. A stopped process (SIGSTOP) ignores SIGTERM, as in a container.
func (w *worker) terminate(p *process.Process) error {
	grace := w.grace()
	w.logger.Info("ending process of Pod", "grace", grace)
	// The process may have ended already.
	_ = p.Signal(syscall.SIGTERM)
	ended := within(grace, p.Done(), w.exists.Done())
	if !ended && w.running.Err() != nil {
		ended = within(min(grace, stopGrace), p.Done(), nil)
	}
	if ended {
		return nil
	}
	return p.Kill()
}

// grace returns the grace period of the deletion or of the Pod.
func (w *worker) grace() time.Duration {
	pod := w.latest.Load()
	seconds := pod.DeletionGracePeriodSeconds
	if seconds == nil {
		seconds = pod.Spec.TerminationGracePeriodSeconds
	}
	if seconds == nil {
		return corev1.DefaultTerminationGracePeriodSeconds * time.Second
	}
	return time.Duration(*seconds) * time.Second
}

// within waits for done, at most for bound or until cut, and reports whether done was closed.
func within(bound time.Duration, done, cut <-chan struct{}) bool {
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-cut:
	case <-timer.C:
	}
	return false
}

func (w *worker) publish(p *process.Process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.process, w.view.PID, w.view.Ready = p, 0, false
	if p != nil {
		w.view.PID = p.Pid()
	}
}

func (w *worker) show(change func(*Pod)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.view)
}

func (w *worker) snapshot() Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.view
}

func (w *worker) signal(signal syscall.Signal) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.process == nil {
		return fmt.Errorf("%s/%s has no process: %w", w.namespace, w.name, os.ErrProcessDone)
	}
	return w.process.Signal(signal)
}
