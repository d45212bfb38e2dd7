package gatewaystatus

import (
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

// The label has a long name only in a short form.
func TestOwnerName(t *testing.T) {
	long := metav1.ObjectMeta{
		Labels:          map[string]string{gateway.GatewayNameLabelKey: "short"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Other", Name: "other"}, {Kind: "Gateway", Name: "long"}},
	}
	unowned, unlabelled := long, long
	unowned.OwnerReferences, unlabelled.Labels = nil, nil
	for _, test := range []struct {
		of   metav1.ObjectMeta
		want string
	}{{long, "long"}, {unowned, "short"}, {unlabelled, ""}} {
		if got := ownerName(&test.of); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

func TestReferencedNames(t *testing.T) {
	g := newGateway(t, plain, fmt.Sprintf(secure, "b, namespace: web}, {name: a"), `{name: c, port: 1, protocol: HTTPS, tls: {certificateRefs: [{name: a}]}}`)
	if got := certificateNames(g); !slices.Equal(got, []string{"web/b", "infra/a", "infra/a"}) {
		t.Errorf("certificates are %q", got)
	}
	route := newRoute(t, "web", "{parentRefs: [{name: b}, {name: a, namespace: infra}, {name: b, port: 1}, {kind: Service, group: '', name: x}], rules: [{backendRefs: [{name: z, namespace: infra}, {name: x}, {name: x}]}]}")
	if got := parentNames(route); !slices.Equal(got, []string{"web/b", "infra/a", "web/b"}) {
		t.Errorf("parents are %q", got)
	}
	if got := backendNames(route); !slices.Equal(got, []string{"infra/z", "web/x", "web/x"}) {
		t.Errorf("backends are %q", got)
	}
}
