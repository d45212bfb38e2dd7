package fences

import (
	"context"
	"sync"
	"testing"

	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// Install installs a fence and removes it when the test ends, because tests share an API server. remove removes it earlier.
func Install(t testing.TB, client kubernetes.Interface, name string, declarations ...fence.Declaration) (set fence.Set, remove func()) {
	t.Helper()
	set, err := fence.Render(name, declarations...)
	harness.Must(t, err)
	remove = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*harness.Patience)
		defer cancel()
		if _, err := install.Remove(ctx, client, set.Name); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(remove)
	if _, err := install.Apply(t.Context(), client, set); err != nil {
		t.Fatal(err)
	}
	return set, remove
}
