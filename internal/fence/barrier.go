package fence

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Barrier returns a policy that refuses one ConfigMap, which has no other purpose, to everyone.
// An API server that refuses it knows every policy and binding that was written before: it
// watches each of the two kinds in order, and takes what it has seen of both into use at once. The
// nonce has to be a new one each time, so that a former barrier is not taken for this one.
func Barrier(set, nonce, namespace string) (Pair, *corev1.ConfigMap) {
	reason := metav1.StatusReasonForbidden
	name := "incumbent-fence-barrier-" + nonce
	p := part{
		set: set, shared: true, what: "barrier",
		spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{
				ResourceRules: rules("", nil, []string{"configmaps"}, []string{"CREATE"}, []string{name}),
			},
			Validations: []admissionv1.Validation{{Expression: "false", Reason: &reason, Message: "policies are in use"}},
		},
	}.pair()
	return p, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
