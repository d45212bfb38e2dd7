package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/apirequest"
)

const (
	// callTimeout bounds one request to the API server.
	callTimeout = 5 * time.Second
	// firstPause and lastPause limit the pause between two attempts.
	firstPause, lastPause = 50 * time.Millisecond, 2 * time.Second
)

// errFinal marks an error that is not retried.
var errFinal = errors.New("not retried")

// retry calls until call succeeds, ctx ends, or the error wraps errFinal. It logs each new error, and reports success.
func retry(ctx context.Context, logger *slog.Logger, doing string, call func(context.Context) error) bool {
	backoff := apirequest.Backoff(firstPause, lastPause)
	var reported apirequest.Reported[string]
	for {
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		err := call(callCtx)
		cancel()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		if _, changed := reported.Change(doing, err.Error()); changed {
			logger.Warn("step of node failed; retrying", "doing", doing, "err", err)
		}
		if errors.Is(err, errFinal) || apirequest.Pause(ctx, backoff.Step()) != nil {
			return false
		}
	}
}

// register creates the Node, and replaces an earlier one with this name. kubectl, tokens and logs need it.
func (n *Node) register(ctx context.Context) error {
	nodes := n.client.CoreV1().Nodes()
	if err := nodes.Delete(ctx, n.options.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete earlier node %s: %w", n.options.Name, err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.options.Name}, Status: n.status()}
	if _, err := nodes.Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create node %s: %w", n.options.Name, err)
	}
	return nil
}

func (n *Node) status() corev1.NodeStatus {
	now := metav1.Now()
	return corev1.NodeStatus{
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue,
			Reason: "ProcessNode", Message: "Pods run as processes",
			LastHeartbeatTime: now, LastTransitionTime: now,
		}},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: n.address}, {Type: corev1.NodeHostName, Address: n.options.Name},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: kubeletPort}},
	}
}
