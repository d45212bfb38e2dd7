package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// statusWriter writes the latest status of the Pod. A slow API server skips older ones.
type statusWriter struct {
	w       *worker
	changed chan struct{}

	mu        sync.Mutex
	status    corev1.PodStatus
	container corev1.ContainerStatus
	why       string
	since     metav1.Time // when the readiness changed
}

func newStatusWriter(w *worker) *statusWriter {
	return &statusWriter{w: w, changed: make(chan struct{}, 1)}
}

// run writes until ctx ends.
func (s *statusWriter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			retry(ctx, s.w.logger, "write status of Pod", s.write)
		}
	}
}

func (s *statusWriter) write(ctx context.Context) error {
	patch, err := s.patch()
	if err != nil {
		return fmt.Errorf("%w (%w)", err, errFinal)
	}
	_, err = s.w.node.client.CoreV1().Pods(s.w.namespace).
		Patch(ctx, s.w.name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return nil // the Pod is gone, or another Pod has its name
	case apierrors.IsInvalid(err):
		// A retry cannot succeed. A Pod with the same name and another UID is rejected in this way, too.
		return fmt.Errorf("%w (%w)", err, errFinal)
	}
	return err
}

// patch returns the complete status, for this UID only.
func (s *statusWriter) patch() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := s.status
	status.ContainerStatuses = []corev1.ContainerStatus{s.container}
	ready := corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: s.since}
	if !s.container.Ready {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "ContainersNotReady", s.why
	}
	containers := ready
	containers.Type = corev1.ContainersReady
	status.Conditions = []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodInitialized, Status: corev1.ConditionTrue}, containers, ready,
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": s.w.uid}, "status": status})
}

// change changes the status and triggers a write.
func (s *statusWriter) change(do func()) {
	s.mu.Lock()
	before := s.container.Ready
	do()
	if s.container.Ready != before || s.since.IsZero() {
		s.since = metav1.Now()
	}
	started := s.container.State.Running != nil
	s.container.Started = &started
	s.mu.Unlock()
	select {
	case s.changed <- struct{}{}:
	default: // the pending write includes this change
	}
}

// placed sets the initial status.
func (s *statusWriter) placed(address string) {
	s.change(func() {
		now := metav1.Now()
		container := corev1.Container{}
		if pod := s.w.latest.Load(); len(pod.Spec.Containers) > 0 {
			container = pod.Spec.Containers[0]
		}
		s.status.Phase = corev1.PodPending
		s.status.StartTime = &now
		host := s.w.node.address
		s.status.HostIP, s.status.HostIPs = host, []corev1.HostIP{{IP: host}}
		s.status.PodIP, s.status.PodIPs = address, []corev1.PodIP{{IP: address}}
		s.container.Name, s.container.Image = container.Name, container.Image
		s.container.State = waitingState("ContainerCreating", "")
	})
}

// waiting sets the state to waiting, with the reason.
func (s *statusWriter) waiting(reason, message string) {
	s.change(func() {
		s.container.State = waitingState(reason, message)
		s.why = message
	})
}

// running sets the state to running.
func (s *statusWriter) running(pid, restarts int) {
	s.change(func() {
		s.container.RestartCount = int32(restarts)
		s.status.Phase = corev1.PodRunning
		s.container.ContainerID = fmt.Sprintf("process://%d", pid)
		s.container.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}
		s.why = "no probe yet"
	})
}

// ready sets the readiness and its reason.
func (s *statusWriter) ready(ready bool, why string) {
	s.mu.Lock()
	same := s.container.Ready == ready && s.why == why
	s.mu.Unlock()
	if same {
		return
	}
	s.change(func() { s.container.Ready, s.why = ready, why })
}

// ended sets the state to terminated.
func (s *statusWriter) ended(state *os.ProcessState) {
	s.change(func() {
		terminated := &corev1.ContainerStateTerminated{
			ExitCode: exitCode(state), Reason: "Completed", Message: state.String(),
			FinishedAt: metav1.Now(), ContainerID: s.container.ContainerID,
		}
		if terminated.ExitCode != 0 {
			terminated.Reason = "Error"
			if containers := s.w.latest.Load().Spec.Containers; containers[0].TerminationMessagePolicy == corev1.TerminationMessageFallbackToLogsOnError {
				terminated.Message = s.w.endOfLog()
			}
		}
		if running := s.container.State.Running; running != nil {
			terminated.StartedAt = running.StartedAt
		}
		s.container.State = corev1.ContainerState{Terminated: terminated}
		s.container.Ready = false
		s.why = state.String()
	})
}

// backOff sets the state to waiting for a restart. failure is the error of the start, or nil.
func (s *statusWriter) backOff(delay time.Duration, failure error) {
	s.change(func() {
		if s.container.State.Terminated != nil {
			s.container.LastTerminationState = s.container.State
		}
		message := fmt.Sprintf("restart after %v; the output is in %s", delay, s.w.view.Log)
		reason := "CrashLoopBackOff"
		if failure != nil {
			reason, message = "RunContainerError", failure.Error()
		}
		s.container.State = waitingState(reason, message)
	})
}

func waitingState(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// exitCode returns the exit code as a container runtime does: 128 plus the signal for a killed process.
func exitCode(state *os.ProcessState) int32 {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(state.ExitCode())
}
