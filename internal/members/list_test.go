package members

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
)

func TestList_InvalidMember(t *testing.T) {
	liar := leaseOf(func(l *coordinationv1.Lease) { l.Name = "incumbent-member-liar" })
	server := apiserver.New(liar, leaseOf(nil))
	client := server.Kube(t)
	all, err := List(t.Context(), client, "istio-system")
	if len(all) != 1 || all[0].Identity != "pilot-1" || err == nil || !strings.Contains(err.Error(), "istio-system/incumbent-member-liar") {
		t.Errorf("got %+v, %v", all, err)
	}
	if all := server.Requests(); len(all) != 1 || all[0].String() != "list leases istio-system" || all[0].URL.Query().Get("labelSelector") != "incumbent.dev/member=true" {
		t.Errorf("requests %v", all)
	}
	server.On(func(apiserver.Request) apiserver.Fault { return forbidden })
	if all, err := List(t.Context(), client, ""); len(all) > 0 || err == nil || !strings.Contains(err.Error(), "list members") {
		t.Errorf("forbidden: %+v, %v", all, err)
	}
}
