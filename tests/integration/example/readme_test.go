package example

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
	"incumbent.dev/incumbent/tests/cluster"
)

const (
	root = "../../.."
	// home and election are the names in the example.
	home     = "default"
	election = "my-controller"
)

// The commands of the README's Install and Quick start work in their order in an empty folder. Two processes without POD_NAME
// are two candidates: the second one leads after the first one was stopped. They have the permissions that the README names.
func TestREADME_InstallAndQuickStart(t *testing.T) { // TestQuickStart uses the same lock
	c := cluster.Shared(t)
	folder := t.TempDir()
	module, err := filepath.Abs(root)
	harness.Must(t, err)
	install, err := example.Commands(root, "\n## Install\n", "\n## Quick start\n")
	harness.Must(t, err)
	start, err := example.Commands(root, "\n## Quick start\n", "\n## Try it\n")
	harness.Must(t, err)
	clone := slices.IndexFunc(install, func(c string) bool { return strings.HasPrefix(c, "git clone ") })
	run := slices.Index(start, "go run .")
	if clone != 0 || run < 1 {
		t.Fatalf("commands of README.md: %q, %q", install, start)
	}
	install[clone] = "ln -s '" + module + "' incumbent" // the clone of this commit
	bash := func(dir string, commands []string) {
		t.Helper()
		shell := exec.CommandContext(t.Context(), "bash", "-ec", strings.Join(commands, "\n"))
		shell.Dir = dir
		if out, err := shell.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", commands, err, out)
		}
	}
	bash(folder, install)
	user := filepath.Join(folder, "your-module")
	if _, err := example.Write(root, user); err != nil {
		t.Fatal(err)
	}
	// A signal to `go run` does not reach the program, so the test builds the program instead.
	bash(user, append(start[:run], "go build -o quickstart ."))
	replica := func(name string) *harness.Process {
		// The permissions of a candidate. The Pod does not run.
		access := filepath.Join(folder, name)
		identity := c.Identity(t, cluster.IdentityOptions{Namespace: home, PodName: name, ServiceAccount: election, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create"}},
			{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get", "update", "watch"}, ResourceNames: []string{election}},
		}})
		harness.Must(t, cluster.WriteKubeconfig(access, identity, ""))
		return harness.Start(t, name, []string{"KUBECONFIG=" + access, "POD_NAME="}, filepath.Join(user, "quickstart"))
	}
	leads := func(p *harness.Process) bool { return strings.Contains(p.Errors.String(), " leading") }
	first := replica("first")
	harness.Until(t, "the first process leads", func() bool { return leads(first) })
	second := replica("second")
	identity := func(p *harness.Process) (name string) {
		harness.Until(t, "the process has a name", func() bool {
			_, after, _ := strings.Cut(p.Errors.String(), "using a unique one")
			_, name, _ = strings.Cut(strings.SplitN(after, "\n", 2)[0], "identity=")
			return name != ""
		})
		return name
	}
	if a, b := identity(first), identity(second); a == b {
		t.Errorf("both processes have the identity %s", a)
	}
	// A stopped leader releases the lock, and the next one does not wait for the lease.
	stop := func(p *harness.Process) {
		p.Signal(t, syscall.SIGTERM)
		if code := p.Exit(t); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
	stop(first)
	harness.Until(t, "the second process leads", func() bool { return leads(second) })
	stop(second)
	lease, err := c.Client(t).Kube().CoordinationV1().Leases(home).Get(t.Context(), election, metav1.GetOptions{})
	harness.Must(t, err)
	now := k8sresourcelock.LeaseSnapshot(lease)
	if r := now.Record; now.Unreadable != nil || r.HolderIdentity != "" || r.LeaseDurationSeconds != 1 || r.LeaderTransitions != 1 || len(now.Annotations) != 0 {
		t.Errorf("after both were stopped: %+v, annotations %v", r, now.Annotations)
	}
}
