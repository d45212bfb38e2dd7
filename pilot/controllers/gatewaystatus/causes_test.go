package gatewaystatus

import (
	"reflect"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// failingPods returns a Pod of the Deployment gw-istio with each status. The last Pod is the oldest.
func failingPods(t *testing.T, statuses ...string) (all []metav1.Object) {
	t.Helper()
	for i, status := range statuses {
		all = append(all, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "infra", Name: "gw-istio-7f-" + string(rune('a'+i)), CreationTimestamp: metav1.Unix(int64(100-i), 0),
				Labels:          map[string]string{gateway.GatewayNameLabelKey: "gw", "pod-template-hash": "7f"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "gw-istio-7f"}},
			},
			Status: *read[corev1.PodStatus](t, status),
		})
	}
	return all
}

const (
	unready = `conditions: [{type: PodScheduled, status: "True"}, {type: Ready, status: "False"}]
`
	waits = `{phase: Pending, conditions: [{type: PodScheduled, status: "True"}, {type: Ready, status: "False"}],
		containerStatuses: [{name: a, state: {waiting: {reason: ContainerCreating}}}]}`
	evicted = `{phase: Failed, reason: Evicted, message: low on memory}`
)

// Each cause that an object of the Gateway reports is in the condition Programmed, also while other Pods serve.
func TestGatewayStatus_Causes(t *testing.T) {
	pods := func(statuses ...string) func(*testing.T, *table) {
		return func(t *testing.T, v *table) { v.objects = append(v.objects, failingPods(t, statuses...)...) }
	}
	foreign := func(change func(*corev1.Pod)) func(*testing.T, *table) {
		return func(t *testing.T, v *table) {
			all := failingPods(t, evicted)
			change(all[0].(*corev1.Pod))
			v.objects = append(v.objects, all...)
		}
	}
	deployment := func(conditions string) func(*testing.T, *table) {
		return func(t *testing.T, v *table) {
			d := v.deployments("infra", "gw")[0]
			d.Status.Conditions = append(d.Status.Conditions, read[appsv1.DeploymentStatus](t, conditions).Conditions...)
		}
	}
	made := metav1.ObjectMeta{Namespace: "infra", Name: "gw-istio", OwnerReferences: []metav1.OwnerReference{{UID: "g"}}}
	autoscaler := func(conditions string) func(*testing.T, *table) {
		return func(t *testing.T, v *table) {
			v.objects = append(v.objects, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: made, Status: *read[autoscalingv2.HorizontalPodAutoscalerStatus](t, conditions)})
		}
	}
	budget := func(conditions string) func(*testing.T, *table) {
		return func(t *testing.T, v *table) {
			v.objects = append(v.objects, &policyv1.PodDisruptionBudget{ObjectMeta: made, Status: *read[policyv1.PodDisruptionBudgetStatus](t, conditions)})
		}
	}
	const forbidden = `{type: ReplicaFailure, status: "True", reason: FailedCreate, message: 'pods "a" is forbidden: violates PodSecurity'}`
	const late = `{type: Progressing, status: "False", reason: ProgressDeadlineExceeded, message: timed out}`
	mount := func(pod, event string) func(*testing.T, *table) {
		return func(t *testing.T, v *table) {
			all := failingPods(t, pod)
			all[0].SetUID("pod")
			v.objects = append(v.objects, all[0], &corev1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: "a"}, Reason: "FailedMount", Message: `secret "tls" not found`,
				InvolvedObject: corev1.ObjectReference{Namespace: "infra", Name: "gw-istio-7f-a", UID: types.UID(event)},
			})
		}
	}
	for name, test := range map[string]struct {
		change func(*testing.T, *table)
		want   string
	}{
		"nothing":                      {func(*testing.T, *table) {}, ""},
		"missing Secret of a volume":   {mount(waits, "pod"), `Pod gw-istio-7f-a: FailedMount: secret "tls" not found`},
		"volume of a former Pod":       {mount(waits, "former"), ""},
		"volume is mounted":            {mount("{phase: Running}", "pod"), ""},
		"Pod Security or quota":        {deployment(`{conditions: [` + forbidden + `]}`), `FailedCreate: pods "a" is forbidden: violates PodSecurity`},
		"rollout too slow":             {deployment(`{conditions: [` + late + `]}`), "ProgressDeadlineExceeded: timed out"},
		"two conditions":               {deployment(`{conditions: [` + late + `,` + forbidden + `]}`), `FailedCreate: pods "a" is forbidden: violates PodSecurity; ProgressDeadlineExceeded: timed out`},
		"rollout goes on":              {deployment(`{conditions: [{type: Progressing, status: "True", message: fine}]}`), ""},
		"unschedulable, or no volume":  {pods(`conditions: [{type: PodScheduled, status: "False", reason: Unschedulable, message: pod has unbound immediate PersistentVolumeClaims}]`), "Pod gw-istio-7f-a: Unschedulable: pod has unbound immediate PersistentVolumeClaims"},
		"image pull":                   {pods(unready + `containerStatuses: [{name: istio-proxy, state: {waiting: {reason: ImagePullBackOff, message: no such image}}}]`), "Pod gw-istio-7f-a: container istio-proxy: ImagePullBackOff: no such image"},
		"missing ConfigMap":            {pods(unready + `containerStatuses: [{name: istio-proxy, state: {waiting: {reason: CreateContainerConfigError, message: configmap "a" not found}}}]`), `Pod gw-istio-7f-a: container istio-proxy: CreateContainerConfigError: configmap "a" not found`},
		"crash":                        {pods(unready + `containerStatuses: [{name: istio-proxy, state: {terminated: {exitCode: 3, reason: Error, message: "bad\nflag\e[1m"}}}]`), "Pod gw-istio-7f-a: container istio-proxy: Error with exit code 3: bad flag\uFFFD[1m"},
		"crash, waits":                 {pods(unready + `containerStatuses: [{name: istio-proxy, state: {waiting: {reason: CrashLoopBackOff, message: back-off 10s}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled}}}]`), "Pod gw-istio-7f-a: container istio-proxy: OOMKilled with exit code 137"},
		"crash, runs again":            {pods(unready + `containerStatuses: [{name: istio-proxy, state: {running: {}}, lastState: {terminated: {exitCode: 137, reason: OOMKilled}}}]`), "Pod gw-istio-7f-a: container istio-proxy: OOMKilled with exit code 137"},
		"init container":               {pods(unready + `initContainerStatuses: [{name: init, state: {waiting: {reason: ErrImagePull}}}]`), "Pod gw-istio-7f-a: container init: ErrImagePull"},
		"evicted":                      {pods(evicted), "Pod gw-istio-7f-a: Evicted: low on memory"},
		"evicted and replaced":         {pods(evicted, unready+`containerStatuses: [{name: a, state: {waiting: {reason: InvalidImageName}}}]`), "Pod gw-istio-7f-b: container a: InvalidImageName"},
		"newest Pod":                   {pods(unready+`containerStatuses: [{name: a, state: {waiting: {reason: X}}}]`, unready+`containerStatuses: [{name: a, state: {waiting: {reason: Y}}}]`), "Pod gw-istio-7f-a: container a: X"},
		"Pod starts":                   {pods(unready + `containerStatuses: [{name: a, state: {waiting: {reason: ContainerCreating}}}]`), ""},
		"Pod is ready after a crash":   {pods(`{conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: a, ready: true, lastState: {terminated: {exitCode: 1}}}]}`), ""},
		"init container has ended":     {pods(unready + `initContainerStatuses: [{name: init, state: {terminated: {exitCode: 0, reason: Completed}}}]`), ""},
		"Pod is deleted":               {foreign(func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), ""},
		"Pod without owner":            {foreign(func(p *corev1.Pod) { p.OwnerReferences = nil }), ""},
		"Pod of another Deployment":    {foreign(func(p *corev1.Pod) { p.OwnerReferences[0].Name = "old-istio-7f" }), ""},
		"Pod of another Gateway":       {foreign(func(p *corev1.Pod) { p.Labels[gateway.GatewayNameLabelKey] = "other" }), ""},
		"autoscaler without metrics":   {autoscaler(`conditions: [{type: AbleToScale, status: "True"}, {type: ScalingActive, status: "False", reason: FailedGetResourceMetric, message: no metrics}]`), "HorizontalPodAutoscaler gw-istio: FailedGetResourceMetric: no metrics"},
		"autoscaler cannot scale":      {autoscaler(`conditions: [{type: AbleToScale, status: "False", reason: FailedGetScale, message: no scale}]`), "HorizontalPodAutoscaler gw-istio: FailedGetScale: no scale"},
		"autoscaler at its limit":      {autoscaler(`conditions: [{type: ScalingActive, status: "True"}, {type: ScalingLimited, status: "True", reason: TooManyReplicas, message: limited}]`), ""},
		"budget not computed":          {budget(`conditions: [{type: DisruptionAllowed, status: "False", reason: SyncFailed, message: found no controllers, lastTransitionTime: null}]`), "PodDisruptionBudget gw-istio: SyncFailed: found no controllers"},
		"budget allows no disruptions": {budget(`conditions: [{type: DisruptionAllowed, status: "False", reason: InsufficientPods, message: "", lastTransitionTime: null}]`), ""},
		"long text":                    {pods(`{phase: Failed, message: "` + strings.Repeat("é", 3000) + `"}`), "Pod gw-istio-7f-a: Failed: " + strings.Repeat("é", maxCause/2-4) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, available := range []bool{true, false} {
				v := usual(t, newGateway(t, plain))
				test.change(t, v)
				state, message := "True/Programmed", test.want
				if !available {
					v.deployments("infra", "gw")[0].Status.AvailableReplicas = 0
					state, message = "False/Pending", "Deployment gw-istio has too few available pods"+prefixed(test.want)
				}
				v.keep()
				status := gatewayStatus(v, v.gateway("infra", "gw"))
				got := apimeta.FindStatusCondition(status.Conditions, "Programmed")
				if stated(t, status.Conditions, "Programmed", 3) != state || got.Message != message {
					t.Errorf("%+v, want %s %q", got, state, message)
				}
				if of := apimeta.FindStatusCondition(status.Listeners[0].Conditions, "Programmed"); !available && of.Message != message {
					t.Errorf("listener: %+v", of)
				}
			}
		})
	}
}

// A Service without an address passes on its conditions, or the newest warning about it.
func TestGatewayStatus_ServiceCauses(t *testing.T) {
	warning := func(name, service, message string, at int64) *corev1.Event {
		return &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "infra", Name: name}, Reason: "SyncLoadBalancerFailed", Message: message, LastTimestamp: metav1.Unix(at, 0),
			InvolvedObject: corev1.ObjectReference{Namespace: "infra", Name: "gw-istio", UID: types.UID("uid of " + service)},
		}
	}
	series := warning("b", "gw-istio", "newest", 0)
	series.LastTimestamp = metav1.Time{}
	series.EventTime = metav1.NewMicroTime(time.Unix(1, 0))
	series.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(time.Unix(9, 0))}
	for name, test := range map[string]struct {
		conditions string
		warnings   []metav1.Object
		want       string
	}{
		"nothing":             {"", nil, ""},
		"quota":               {"", []metav1.Object{warning("a", "gw-istio", "quota\nexceeded", 1)}, ": SyncLoadBalancerFailed: quota exceeded"},
		"newest warning":      {"", []metav1.Object{warning("a", "gw-istio", "new", 2), warning("b", "gw-istio", "old", 1)}, ": SyncLoadBalancerFailed: new"},
		"series":              {"", []metav1.Object{series, warning("a", "gw-istio", "older", 8)}, ": SyncLoadBalancerFailed: newest"},
		"former Service":      {"", []metav1.Object{warning("a", "former", "quota", 1)}, ""},
		"condition":           {`conditions: [{type: cilium.io/IPAMRequestSatisfied, status: "False", reason: no_pool, message: no pool, lastTransitionTime: null}]`, nil, ": no_pool: no pool"},
		"condition, no words": {`conditions: [{type: a, status: "True", reason: ok, message: "", lastTransitionTime: null}]`, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			v := usual(t, newGateway(t, plain))
			v.objects = append(v.objects, test.warnings...)
			service := v.services("infra", "gw")[0]
			service.UID = "uid of gw-istio"
			service.Status = *read[corev1.ServiceStatus](t, test.conditions)
			v.keep()
			got := apimeta.FindStatusCondition(gatewayStatus(v, v.gateway("infra", "gw")).Conditions, "Programmed")
			if want := "Service gw-istio has no address yet" + test.want; got.Message != want {
				t.Errorf("%+v, want %q", got, want)
			}
		})
	}
}

// keep replaces the objects by the parts that the caches keep. To keep them again changes nothing.
func (t *table) keep() {
	for i, o := range t.objects {
		for range 2 {
			switch object := o.(type) {
			case *corev1.Pod:
				o = keptPod(object)
			case *autoscalingv2.HorizontalPodAutoscaler:
				o = keptAutoscaler(object)
			case *policyv1.PodDisruptionBudget:
				o = keptBudget(object)
			case *corev1.Event:
				o = keptEvent(object)
			case *corev1.Service:
				o = keptService(object)
			}
		}
		t.objects[i] = o
	}
}

// The caches keep no content of objects without a cause, and a bounded text of Events.
func TestKept_IsBounded(t *testing.T) {
	pod := failingPods(t, `{conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: a, image: b}]}`)[0].(*corev1.Pod)
	pod.Spec.NodeName = "node"
	pod.Annotations = map[string]string{"a": "b"}
	if kept := keptPod(pod); !reflect.DeepEqual(kept.Status, corev1.PodStatus{}) || kept.Spec.NodeName != "" || kept.Annotations != nil {
		t.Errorf("%+v", kept)
	}
	long := strings.Repeat("a", 1<<16)
	if kept := keptEvent(&corev1.Event{Reason: long, Message: long, Source: corev1.EventSource{Host: long}}); kept.Size() > 3*maxCause {
		t.Errorf("an Event keeps %d bytes", kept.Size())
	}
}
