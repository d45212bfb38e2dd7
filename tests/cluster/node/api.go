package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

const (
	// callTimeout bounds one request to the API server.
	callTimeout = 5 * time.Second
	// firstPause and lastPause are the waits between tries of a request that failed.
	firstPause, lastPause = 50 * time.Millisecond, 2 * time.Second
)

var everything = fields.Everything()

// errFinal marks an error that no retry cures.
var errFinal = errors.New("not tried again")

// retry calls until it succeeds. It gives up, and tells so, when ctx ends or the error
// wraps errFinal; report hears of errors, once for each text.
func retry(ctx context.Context, report func(error), call func(context.Context) error) bool {
	pause := firstPause
	said := ""
	for {
		bounded, cancel := context.WithTimeout(ctx, callTimeout)
		err := call(bounded)
		cancel()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if text := err.Error(); text != said {
			report(err)
			said = text
		}
		if errors.Is(err, errFinal) || !linger(ctx, pause) {
			return false
		}
		pause = min(2*pause, lastPause)
	}
}

// linger waits, and tells whether ctx is still alive.
func linger(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// report logs errors of the node itself.
func (n *Node) report(doing string) func(error) {
	return func(err error) {
		n.options.Logger.Warn("the node waits for the API server", "doing", doing, "error", err)
	}
}

// register makes the Node's object. Binding does not ask for it; kubectl and tokens, which
// name a node that is there, do.
func (n *Node) register(ctx context.Context) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.options.Name},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue,
				Reason: "ProcessNode", Message: "Pods run as processes",
				LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
			}},
		},
	}
	_, err := n.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating node %s: %w", n.options.Name, err)
	}
	return nil
}
