package members

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestList_InvalidMember(t *testing.T) {
	var asked []string
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.String())
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(coordinationv1.LeaseList{Items: []coordinationv1.Lease{
			*leaseOf(func(l *coordinationv1.Lease) { l.Name = "incumbent-member-liar" }), *leaseOf(nil),
		}})
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	if err != nil {
		t.Fatal(err)
	}
	all, err := List(t.Context(), client, "istio-system")
	if len(all) != 1 || all[0].Identity != "pilot-1" || err == nil || !strings.Contains(err.Error(), "istio-system/incumbent-member-liar") {
		t.Errorf("got %+v, %v", all, err)
	}
	if want := "GET /apis/coordination.k8s.io/v1/namespaces/istio-system/leases?labelSelector=incumbent.dev%2Fmember%3Dtrue"; len(asked) != 1 || asked[0] != want {
		t.Errorf("requests: %q", asked)
	}
	status = http.StatusForbidden
	if all, err := List(t.Context(), client, ""); len(all) > 0 || err == nil || !strings.Contains(err.Error(), "list members") {
		t.Errorf("forbidden: %+v, %v", all, err)
	}
}
