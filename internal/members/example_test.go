package members_test

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
)

// List reads all members of a namespace.
func ExampleParse() {
	holder, seconds, now := "pod-a", int32(90), metav1.NowMicro()
	m, err := members.Parse(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "istio-system", Name: members.LeaseName(holder), Labels: map[string]string{members.Label: members.LabelValue},
			Annotations: map[string]string{members.StateAnnotation: `{"revision":"stable","cluster":"local","version":"v1.2.0",
				"elections":[{"name":"istio-leader","candidate":true,"warm":true,"fit":false}]}`},
		},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	in, takes := m.Part("istio-leader")
	fmt.Println(m.Identity, m.Revision, "takes part:", takes, "warm:", in.Warm, "fit:", in.Fit)
	// Output:
	// pod-a stable takes part: true warm: true fit: false
}
