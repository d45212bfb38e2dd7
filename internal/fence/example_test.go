package fence_test

import (
	"fmt"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/record"
)

// The policies let only the pod that the lock names write the status of Ingresses.
func ExampleRender() {
	set, err := fence.Render("istio-system", fence.Declaration{
		Election: "istio-leader", Namespace: "istio-system", Lock: record.Lease,
		ServiceAccounts: []string{"istio-system/istiod"},
		Guards:          []fence.Guard{{Group: "networking.k8s.io", Resources: []string{"ingresses/status"}, Wide: true}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, pair := range set.Work {
		fmt.Println(pair.Policy.Name)
	}
	_, err = fence.Render("istio-system", fence.Declaration{Election: "istio-leader", Namespace: "istio-system", Lock: record.Lease})
	fmt.Println(err)
	// Output:
	// incumbent-fence.istio-system.istio-leader.lease.work.deny-bf3d05b157
	// fence for election "istio-leader": no service accounts: give the accounts of the candidates, such as istio-system/pilot
}
