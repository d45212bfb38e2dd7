package install

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/fence"
)

func TestSeen_Forbidden(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "x", errors.New("no"))
	for name, test := range map[string]struct {
		verb, resource, words string
	}{
		"it cannot be put up": {"get", bothPolicies, ""},
		"it may not be tried": {"create", "configmaps", "check whether API server 1 enforces the policies"},
	} {
		synctest.Test(t, func(t *testing.T) {
			p, _ := fence.Barrier("s", "n", "default") // the applied object is another object: it is replaced
			objects := map[string]any{bothPolicies: p.Policy, bothBindings: p.Binding}
			client := newScripted(t, func(verb, resource string) (any, error) {
				switch {
				case verb == test.verb && resource == test.resource:
					return nil, forbidden
				case verb == "patch", verb == "update":
					return objects[resource], nil
				}
				return nil, nil
			})
			replaced := 0
			client.seen = func(verb string, r *http.Request) {
				if verb != "update" {
					return
				}
				replaced++
				if manager := r.URL.Query().Get("fieldManager"); manager != fieldManager {
					t.Errorf("%s: %s is replaced by %q", name, r.URL.Path, manager)
				}
			}
			began := time.Now()
			err := seen(t.Context(), "s", client, Options{})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.words) || time.Since(began) > 0 {
				t.Errorf("%s: after %v: %v", name, time.Since(began), err)
			}
			if tried := test.verb == "create"; tried != (replaced == 2) {
				t.Errorf("%s: %d were replaced", name, replaced)
			}
		})
	}
}
