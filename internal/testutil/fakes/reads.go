package fakes

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	k8stesting "k8s.io/client-go/testing"

	"incumbent.dev/incumbent/internal/testutil/logs"
)

// CheckReads checks for each resource that a controller without the permission to list it waits in Warm until the end of its
// context, and reports the resource in the error and once in its log with the effect. It also checks what the lists select: namespace, fields and labels.
func CheckReads(t *testing.T, effect string, selections map[string]string, create func(*testing.T) (Controller, *logs.Buffer, []*k8stesting.Fake)) {
	t.Helper()
	for resource, selection := range selections {
		t.Run(resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, log, clients := create(t)
				forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
				for _, client := range clients {
					client.PrependReactor("list", resource, func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, forbidden })
					client.PrependWatchReactor(resource, k8stesting.DefaultWatchReactor(nil, forbidden))
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				if err := c.Warm(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "list "+resource) {
					t.Errorf("Warm returned %v", err)
				}
				c.Close()
				if log.Count("permission denied", " "+resource, effect) != 1 {
					t.Errorf("log:\n%s", log)
				}
				for _, client := range clients {
					for _, action := range client.Actions() {
						list, ok := action.(k8stesting.ListAction)
						if !ok || action.GetResource().Resource != resource {
							continue
						}
						by := list.GetListRestrictions()
						if got := strings.TrimSpace(action.GetNamespace() + " " + by.Fields.String() + by.Labels.String()); got != selection {
							t.Errorf("the list selects %q, want %q", got, selection)
						}
					}
				}
			})
		})
	}
}
