package manifests

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// service is where a revision's metrics are, and what else its replicas answer.
func (v Values) service() *corev1.Service {
	return &corev1.Service{
		TypeMeta: kind("v1", "Service"), ObjectMeta: v.meta(),
		Spec: corev1.ServiceSpec{
			Selector: v.selector(),
			Ports:    []corev1.ServicePort{{Name: "http-monitoring", Port: v.port(), Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(portName)}},
		},
	}
}

// disruptions lets one replica go at a time when nodes are drained.
func (v Values) disruptions() *policyv1.PodDisruptionBudget {
	one := intstr.FromInt32(1)
	return &policyv1.PodDisruptionBudget{
		TypeMeta: kind(policyv1.SchemeGroupVersion.String(), "PodDisruptionBudget"), ObjectMeta: v.meta(),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &one,
			Selector:       &metav1.LabelSelector{MatchLabels: v.selector()},
		},
	}
}

// flowPrecedence comes before the schema of all service accounts (9000), and after that of Kubernetes' own
// elections (100).
const flowPrecedence = 200

// flow has the API server serve requests for locks and candidates beside those of other elections, however busy it is with the
// servers' other work. A schema knows no names of objects: other ConfigMaps of the namespace are served so, too.
func (v Values) flow() *flowcontrolv1.FlowSchema {
	meta := v.meta()
	meta.Name, meta.Namespace = meta.Name+"."+v.Namespace, ""
	rule := func(group string, resources ...string) flowcontrolv1.ResourcePolicyRule {
		return flowcontrolv1.ResourcePolicyRule{
			Verbs: []string{"get", "create", "update", "patch", "watch"}, APIGroups: []string{group}, Resources: resources,
			Namespaces: []string{v.Namespace},
		}
	}
	return &flowcontrolv1.FlowSchema{
		TypeMeta: kind(flowcontrolv1.SchemeGroupVersion.String(), "FlowSchema"), ObjectMeta: meta,
		Spec: flowcontrolv1.FlowSchemaSpec{
			PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "leader-election"},
			MatchingPrecedence:         flowPrecedence,
			DistinguisherMethod:        &flowcontrolv1.FlowDistinguisherMethod{Type: flowcontrolv1.FlowDistinguisherMethodByUserType},
			Rules: []flowcontrolv1.PolicyRulesWithSubjects{{
				Subjects: []flowcontrolv1.Subject{{
					Kind: flowcontrolv1.SubjectKindServiceAccount, ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: v.Namespace, Name: v.meta().Name},
				}},
				ResourceRules: []flowcontrolv1.ResourcePolicyRule{rule("coordination.k8s.io", "leases", "leasecandidates"), rule("", "configmaps")},
			}},
		},
	}
}

// lease is a lock that nobody holds yet.
func (v Values) lease(name string) *coordinationv1.Lease {
	meta := v.meta()
	meta.Name = name
	return &coordinationv1.Lease{TypeMeta: kind(coordinationv1.SchemeGroupVersion.String(), "Lease"), ObjectMeta: meta}
}

// around lists what a revision has beside its servers and their rights.
func (v Values) around() []runtime.Object {
	objects := []runtime.Object{v.service()}
	if !v.WithoutElections {
		objects = append(objects, v.disruptions(), v.flow())
	}
	for _, name := range v.GuardedLeases {
		objects = append(objects, v.lease(name))
	}
	return objects
}
