package fence

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Barrier is a policy that refuses one ConfigMap, which nobody has a use for, to everyone.
// An API server that refuses it knows every policy and binding that was written before: it
// follows each of the two kinds in order, and takes what it has seen of both into use at once. The
// nonce has to be a new one each time: what is seen must not be a former barrier.
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
