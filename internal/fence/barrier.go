package fence

import (
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Barrier returns a policy that rejects the returned ConfigMap. An API server that rejects it has loaded all policies and
// bindings that were written earlier, because it watches each kind in order and loads both kinds together. Use a new nonce
// each time, so that an earlier barrier does not match.
func Barrier(set, nonce, namespace string) (Pair, *corev1.ConfigMap) {
	name := "incumbent-fence-barrier-" + nonce
	p := part{
		set: set, shared: true, what: "barrier-" + nonce,
		rules: rules("", nil, []string{"configmaps"}, []string{"CREATE"}, []string{name}),
		spec: admissionv1.ValidatingAdmissionPolicySpec{
			Validations: []admissionv1.Validation{{Expression: "false", Message: "the API server has loaded the policies"}},
		},
	}.pair()
	return p, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
