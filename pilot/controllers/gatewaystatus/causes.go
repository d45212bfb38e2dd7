package gatewaystatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/errlist"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// maxCause bounds the text of one cause, which other programs write. A condition has a few causes.
const maxCause = 512

// said returns a reason and a message as text, or "" if both are empty.
func said(reason, message string) string {
	if reason != "" && message != "" {
		reason += ": "
	}
	return errlist.SingleLine(reason+message, maxCause)
}

// causes returns why objects of a Gateway are not ready, as they report it themselves. deployment may be nil.
func causes(v view, g *gateway.Gateway, deployment *appsv1.Deployment) (all []string) {
	add := func(object, text string) {
		if text != "" {
			all = append(all, strings.TrimPrefix(object+": ", ": ")+text)
		}
	}
	if deployment != nil {
		add("", deploymentCause(deployment, appsv1.DeploymentReplicaFailure, corev1.ConditionTrue))
		if pod := failingPod(v, g, deployment); pod != nil {
			add("Pod "+pod.Name, podCause(v, pod))
		}
		add("", deploymentCause(deployment, appsv1.DeploymentProgressing, corev1.ConditionFalse))
	}
	if o := owned(g, v.autoscalers(g.Namespace, g.Name)); o != nil {
		add("HorizontalPodAutoscaler "+o.Name, autoscalerCause(o))
	}
	if o := owned(g, v.budgets(g.Namespace, g.Name)); o != nil {
		add("PodDisruptionBudget "+o.Name, budgetCause(o))
	}
	return all
}

// deploymentCause returns the text of a condition of a Deployment with this status, or "". For example, the API server rejects Pods by Pod
// Security or a quota, or they do not become available in time.
func deploymentCause(d *appsv1.Deployment, kind appsv1.DeploymentConditionType, status corev1.ConditionStatus) string {
	for _, c := range d.Status.Conditions {
		if c.Type == kind && c.Status == status {
			return said(c.Reason, c.Message)
		}
	}
	return ""
}

// failingPod returns the Pod of a Deployment whose cause is passed on, or nil: the newest Pod with a cause. Pods that have ended count last,
// because they have been replaced.
func failingPod(v view, g *gateway.Gateway, d *appsv1.Deployment) *corev1.Pod {
	ended := func(p *corev1.Pod) int {
		if p.Status.Phase == corev1.PodFailed {
			return 1
		}
		return 0
	}
	of := slices.DeleteFunc(v.pods(g), func(p *corev1.Pod) bool { return !createdBy(d, p) || podCause(v, p) == "" })
	if len(of) == 0 {
		return nil
	}
	return slices.MinFunc(of, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(ended(a), ended(b)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// createdBy reports whether a ReplicaSet of a Deployment created a Pod.
func createdBy(d *appsv1.Deployment, p *corev1.Pod) bool {
	set := d.Name + "-" + p.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
	return slices.ContainsFunc(p.OwnerReferences, func(r metav1.OwnerReference) bool { return r.Kind == "ReplicaSet" && r.Name == set })
}

// podCause returns why a Pod is not ready, or "". While its containers wait for volumes, for example of a missing Secret, only an Event has
// the cause.
func podCause(v view, p *corev1.Pod) string {
	text := podStatusCause(p)
	if text == "" && p.Status.Phase == corev1.PodPending && p.DeletionTimestamp == nil {
		return newestWarning(v, p.UID)
	}
	return text
}

// podStatusCause returns why a Pod is not ready by its status, or "". A container that crashes has the same text while it waits and after
// its restart, so that the condition does not change each time.
func podStatusCause(p *corev1.Pod) string {
	switch {
	case p.DeletionTimestamp != nil:
		return ""
	case p.Status.Phase == corev1.PodFailed: // for example evicted, or rejected by the kubelet
		return said(cmp.Or(p.Status.Reason, string(p.Status.Phase)), p.Status.Message)
	}
	for _, c := range p.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			return ""
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse: // also without its volumes
			return said(c.Reason, c.Message)
		}
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if text := containerCause(c); text != "" {
			return said("container "+c.Name, text)
		}
	}
	return ""
}

// starting lists the reasons of containers that wait as usual, and of a container that has crashed.
var starting = []string{"", "ContainerCreating", "PodInitializing", "CrashLoopBackOff"}

func containerCause(c corev1.ContainerStatus) string {
	if waiting := c.State.Waiting; waiting != nil && !slices.Contains(starting, waiting.Reason) {
		return said(waiting.Reason, waiting.Message)
	}
	ended := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
	if c.Ready || ended == nil || ended.ExitCode == 0 {
		return ""
	}
	return said(fmt.Sprintf("%s with exit code %d", cmp.Or(ended.Reason, "ended"), ended.ExitCode), ended.Message)
}

func autoscalerCause(o *autoscalingv2.HorizontalPodAutoscaler) string {
	for _, c := range o.Status.Conditions {
		if (c.Type == autoscalingv2.ScalingActive || c.Type == autoscalingv2.AbleToScale) && c.Status == corev1.ConditionFalse {
			return said(c.Reason, c.Message)
		}
	}
	return ""
}

// budgetCause returns why a budget has no effect. Too few Pods are no such cause.
func budgetCause(o *policyv1.PodDisruptionBudget) string {
	for _, c := range o.Status.Conditions {
		if c.Type == policyv1.DisruptionAllowedCondition && c.Reason == policyv1.SyncFailedReason {
			return said(c.Reason, c.Message)
		}
	}
	return ""
}

// serviceCause returns why a Service has no address, from its conditions or its newest Event of type Warning, or "". The service
// controller of Kubernetes reports a failure of the load balancer only as an Event.
func serviceCause(v view, service *corev1.Service) string {
	for _, c := range service.Status.Conditions {
		if c.Message != "" {
			return said(c.Reason, c.Message)
		}
	}
	return newestWarning(v, service.UID)
}

func newestWarning(v view, about types.UID) string {
	warnings := v.warnings(about)
	if len(warnings) == 0 {
		return ""
	}
	newest := slices.MaxFunc(warnings, func(a, b *corev1.Event) int {
		return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return said(newest.Reason, newest.Message)
}

// prefixed returns a text after a colon, or "" for none.
func prefixed(texts ...string) string {
	if text := strings.Join(texts, "; "); text != "" {
		return ": " + text
	}
	return ""
}

// The caches keep only the status of objects that have a cause.

func keptPod(o *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: reconcile.Meta(o.ObjectMeta)}
	kept.CreationTimestamp = o.CreationTimestamp
	kept.OwnerReferences = o.OwnerReferences
	kept.Labels = map[string]string{}
	for _, name := range []string{gateway.GatewayNameLabelKey, appsv1.DefaultDeploymentUniqueLabelKey} {
		kept.Labels[name] = o.Labels[name]
	}
	kept.Status.Phase = o.Status.Phase
	if podStatusCause(o) != "" {
		kept.Status = o.Status
	}
	return kept
}

func keptAutoscaler(o *autoscalingv2.HorizontalPodAutoscaler) *autoscalingv2.HorizontalPodAutoscaler {
	kept := &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: madeMeta(o.ObjectMeta)}
	if autoscalerCause(o) != "" {
		kept.Status.Conditions = o.Status.Conditions
	}
	return kept
}

func keptBudget(o *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	kept := &policyv1.PodDisruptionBudget{ObjectMeta: madeMeta(o.ObjectMeta)}
	if budgetCause(o) != "" {
		kept.Status.Conditions = o.Status.Conditions
	}
	return kept
}

// keptEvent cuts the text, because Events of Services that belong to no Gateway are in the cache too.
func keptEvent(o *corev1.Event) *corev1.Event {
	kept := &corev1.Event{ObjectMeta: reconcile.Meta(o.ObjectMeta), Reason: said(o.Reason, ""), Message: said("", o.Message), LastTimestamp: o.LastTimestamp}
	kept.InvolvedObject = corev1.ObjectReference{Name: o.InvolvedObject.Name, Namespace: o.InvolvedObject.Namespace, UID: o.InvolvedObject.UID}
	if kept.LastTimestamp.IsZero() { // of the newer API
		kept.LastTimestamp = metav1.NewTime(o.EventTime.Time)
		if o.Series != nil {
			kept.LastTimestamp = metav1.NewTime(o.Series.LastObservedTime.Time)
		}
	}
	return kept
}

// madeMeta returns the metadata that is kept of objects that a Gateway owns.
func madeMeta(m metav1.ObjectMeta) metav1.ObjectMeta {
	kept := meta(m)
	kept.OwnerReferences = m.OwnerReferences
	return kept
}
