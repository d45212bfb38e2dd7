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

// service selects the HTTP ports of a revision's replicas, for metrics.
func (v Values) service() *corev1.Service {
	return &corev1.Service{
		TypeMeta: kind("v1", "Service"), ObjectMeta: v.meta(),
		Spec: corev1.ServiceSpec{
			Selector: v.selector(),
			Ports:    []corev1.ServicePort{{Name: "http-monitoring", Port: v.port(), Protocol: corev1.ProtocolTCP, TargetPort: intstr.FromString(portName)}},
		},
	}
}

// disruptions allows one unavailable replica when nodes are drained.
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

// flowPrecedence precedes the schema of all service accounts (9000) and follows the schema of Kubernetes' elections (100).
const flowPrecedence = 200

// flow gives requests for locks and candidates the priority level of leader elections. A FlowSchema cannot select names, so
// it includes other ConfigMaps of the namespace.
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

// lease is a lock without a holder.
func (v Values) lease(name string) *coordinationv1.Lease {
	meta := v.meta()
	meta.Name = name
	return &coordinationv1.Lease{TypeMeta: kind(coordinationv1.SchemeGroupVersion.String(), "Lease"), ObjectMeta: meta}
}

// around returns the objects other than the Deployment and RBAC.
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
