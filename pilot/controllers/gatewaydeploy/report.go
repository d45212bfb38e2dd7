package gatewaydeploy

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// maxProblem bounds the recorded text of problems.
const maxProblem = 2048

// failing records an Event when the API server starts to reject writes for a Gateway.
func (c *Controller) failing(of key, err error) {
	if gw := c.gateways.Get(of.Namespace, of.Name); gw != nil && rejection(err) != nil {
		c.problems.Failed(reference(gw), reasonWriteFailed, err)
	}
}

// rejection returns the problem that the API server rejects a write, or nil. Other errors are transient.
func rejection(err error) *Problem {
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err) {
		return problemf(reasonWriteFailed, "%v", err)
	}
	return nil
}

// reference returns the object of an Event.
func reference(gw *gateway.Gateway) *corev1.ObjectReference {
	return reconcile.Reference(gateway.GroupVersion.String(), "Gateway", gw)
}

// record returns the text for the annotation with the problems of a Gateway. The message of a rejected write
// can change with each attempt and is not updated.
func record(gw *gateway.Gateway, problems []*Problem) string {
	text := reconcile.ProblemText(problems)
	before := gw.Annotations[ProblemAnnotation]
	if rejected := reasonWriteFailed + ": "; strings.HasPrefix(text, rejected) && strings.HasPrefix(before, rejected) {
		return before
	}
	return strings.ToValidUTF8(text[:min(len(text), maxProblem)], "")
}

// ProblemOf returns the first problem that a Controller recorded on a Gateway, or nil. Its message
// also contains the other problems.
func ProblemOf(gw *gateway.Gateway) *Problem {
	reason, message, found := strings.Cut(gw.Annotations[ProblemAnnotation], ": ")
	if !found {
		return nil
	}
	return &Problem{Reason: reason, Message: message}
}

// annotate writes annotations to a Gateway, where nil removes an annotation. If it returns false without an
// error, the Gateway has changed and the next event causes a reconcile.
func (c *Controller) annotate(ctx context.Context, self reconcile.Target[key, *gateway.Gateway], gw *gateway.Gateway, annotations map[string]any) (written bool, err error) {
	body := reconcile.MergePatch(gw, map[string]any{"annotations": annotations}, nil)
	got, rejected := c.writer.Gateways(gw.Namespace).Patch(ctx, gw.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: reconcile.GatewayController})
	err = self.Answered(gw, got, rejected, "write annotations of Gateway "+keyOf(gw).String())
	return rejected == nil, err
}

// recordProblems writes the problems to the Gateway if they have changed.
func (c *Controller) recordProblems(ctx context.Context, self reconcile.Target[key, *gateway.Gateway], problems []*Problem) error {
	gw, known := self.Latest()
	if !known || gw == nil || gw.DeletionTimestamp != nil {
		return nil
	}
	text := record(gw, problems)
	if text == gw.Annotations[ProblemAnnotation] {
		return nil
	}
	var value any = text
	if text == "" {
		value = nil
	}
	_, err := c.annotate(ctx, self, gw, map[string]any{ProblemAnnotation: value})
	return err
}
