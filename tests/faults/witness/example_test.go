package witness

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// The leader of the example is killed, and the other replica leads.
func TestExample(t *testing.T) {
	t.Parallel()
	s := newStage(t, "leases")
	program := filepath.Join(t.TempDir(), "example")
	if err := example.Build(t.Context(), filepath.Join("..", "..", ".."), "./examples/witness", program, "-trimpath"); err != nil {
		t.Fatal(err)
	}
	replica := func(name string) *harness.Process {
		return harness.Start(t, name, []string{"POD_NAME=" + name, "POD_NAMESPACE=" + s.namespace, "KUBECONFIG=" + s.pod(name).access}, program)
	}
	leads := func(p *harness.Process) bool { return strings.Contains(p.Out.String(), "leading, process") }
	a := replica("a")
	harness.Until(t, "a leads", func() bool { return leads(a) })
	b := replica("b")
	children, err := harness.Children(a.PID())
	if err != nil || len(children) != 1 {
		t.Fatalf("children of a: %v, %v", children, err)
	}
	if err := syscall.Kill(children[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if exit := a.Exit(t); exit != -int(syscall.SIGKILL) || !strings.Contains(a.Errors.String(), "why=holder-died") {
		t.Errorf("a ended with %d and logged\n%s", exit, &a.Errors)
	}
	harness.Until(t, "b leads", func() bool { return leads(b) && strings.Contains(b.Errors.String(), "why=holder-died") })
	b.Signal(t, syscall.SIGTERM)
	if exit := b.Exit(t); exit != 0 || !strings.Contains(b.Out.String(), "stopped leading") {
		t.Errorf("b ended with %d and printed\n%s", exit, &b.Out)
	}
	lease, err := s.admin.CoordinationV1().Leases(s.namespace).Get(t.Context(), "my-controller", metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "" || lease.Annotations[record.WitnessReleaseAnnotation] != "" {
		t.Errorf("after the stop: %+v, %v", lease, err)
	}
}
