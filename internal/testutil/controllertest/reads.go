package controllertest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"incumbent.dev/incumbent/internal/testutil/apiserver"
)

// CheckReads checks for each resource that a controller without the permission to list it waits in Warm until the end of its
// context, and reports the resource in the error and once in its log with the effect. It also checks what the reads select: namespace, fields and
// labels. Several selections of a resource are separated by " or ".
func CheckReads(t *testing.T, effect string, selections map[string]string, create func(*testing.T) (Controller, *Stub)) {
	t.Helper()
	for resource, selection := range selections {
		t.Run(resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := create(t)
				s.OnRead(func(r apiserver.Request) apiserver.Fault {
					if r.Resource != resource {
						return apiserver.Fault{}
					}
					query := r.URL.Query()
					if got := strings.TrimSpace(r.Namespace + " " + query.Get("fieldSelector") + query.Get("labelSelector")); !slices.Contains(strings.Split(selection, " or "), got) {
						t.Errorf("%s selects %q, want %q", r, got, selection)
					}
					return apiserver.Fault{Err: apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))}
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := c.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "list "+resource) {
					t.Errorf("Warm returned %v", err)
				}
				c.Close()
				if s.Log.Count("permission denied", " "+resource, effect) != 1 {
					t.Errorf("log:\n%s", &s.Log)
				}
			})
		})
	}
}
