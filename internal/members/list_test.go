package members

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
)

func TestList_InvalidMember(t *testing.T) {
	server := &counting{status: http.StatusOK, answer: coordinationv1.LeaseList{Items: []coordinationv1.Lease{
		*leaseOf(func(l *coordinationv1.Lease) { l.Name = "incumbent-member-liar" }), *leaseOf(nil),
	}}}
	client := server.client(t)
	all, err := List(t.Context(), client, "istio-system")
	if len(all) != 1 || all[0].Identity != "pilot-1" || err == nil || !strings.Contains(err.Error(), "istio-system/incumbent-member-liar") {
		t.Errorf("got %+v, %v", all, err)
	}
	want := []string{"GET /apis/coordination.k8s.io/v1/namespaces/istio-system/leases"}
	if selector := server.queries[0].Get("labelSelector"); !slices.Equal(server.asked, want) || selector != "incumbent.dev/member=true" {
		t.Errorf("requests %q, selector %q", server.asked, selector)
	}
	server.status = http.StatusForbidden
	if all, err := List(t.Context(), client, ""); len(all) > 0 || err == nil || !strings.Contains(err.Error(), "list members") {
		t.Errorf("forbidden: %+v, %v", all, err)
	}
}
