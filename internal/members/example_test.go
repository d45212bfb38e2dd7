package members_test

import (
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/members"
)

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
	in := m.Elections[0]
	fmt.Println(m.Identity, m.Revision, in.Name, "takes part:", in.Candidate, "warm:", in.Warm, "fit:", in.Fit)
	// Output:
	// pod-a stable istio-leader takes part: true warm: true fit: false
}
