package example

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/tests/cluster"
)

// quickStart is the program around the quick start of k8sleaderelection.
const quickStart = `package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

func runController(ctx context.Context) {
	log.Print("leading")
	<-ctx.Done()
}

func main() {
`

// codeBlocks returns the code blocks of a doc comment.
func codeBlocks(t *testing.T, file string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	harness.Must(t, err)
	inside := false
	for line := range strings.Lines(string(text)) {
		code, found := strings.CutPrefix(line, "//\t")
		if found && !inside {
			blocks = append(blocks, "")
		}
		if inside = found; found {
			blocks[len(blocks)-1] += code
		}
	}
	return blocks
}

// The quick start of k8sleaderelection leads with exactly its Role, and hands over when it is stopped.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	c := cluster.Shared(t)
	blocks := codeBlocks(t, "pilot/leaderelection/k8sleaderelection/doc.go")
	var role rbacv1.Role
	harness.Must(t, yaml.UnmarshalStrict([]byte(blocks[1]), &role))
	folder := t.TempDir()
	file, binary := filepath.Join(folder, "main.go"), filepath.Join(folder, "quickstart")
	harness.Must(t, os.WriteFile(file, []byte(quickStart+blocks[0]+"}\n"), 0o600))
	harness.Must(t, example.Build(t.Context(), root, file, binary, "-ldflags=-s -w"))
	replica := func(name string) *harness.Process {
		config := c.Identity(t, cluster.IdentityOptions{Namespace: role.Namespace, PodName: name, ServiceAccount: "quickstart", Rules: role.Rules})
		kubeconfig := filepath.Join(folder, name)
		harness.Must(t, cluster.WriteKubeconfig(kubeconfig, config, role.Namespace))
		return harness.Start(t, name, []string{"KUBECONFIG=" + kubeconfig, "POD_NAME=" + name}, binary)
	}
	leads := func(p *harness.Process) {
		t.Helper()
		harness.Until(t, "it leads", func() bool { return strings.Contains(p.Errors.String(), " leading") })
	}
	first := replica("quick-a")
	leads(first)
	second := replica("quick-b")
	first.Signal(t, syscall.SIGTERM)
	if code := first.Exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	leads(second)
	lease, err := c.Client(t).Kube().CoordinationV1().Leases(role.Namespace).Get(t.Context(), role.Name, metav1.GetOptions{})
	if err != nil || *lease.Spec.HolderIdentity != "quick-b" {
		t.Errorf("%v, error %v", lease.Spec, err)
	}
	if log := first.Errors.String() + second.Errors.String(); strings.Contains(log, "forbidden") {
		t.Errorf("the Role is not sufficient:\n%s", log)
	}
}
