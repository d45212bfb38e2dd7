package gitops

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	enginekube "github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/internal/testutil/example"
	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pkg/kube"
	"incumbent.dev/incumbent/tests/cluster"
	"incumbent.dev/incumbent/tests/cluster/node"
)

const (
	home   = "istio-system"
	marker = "incumbent.dev/leader"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{Module: "."}) }

// plane is a control plane that an application installs.
type plane struct {
	*cluster.Cluster
	t    *testing.T
	kube kube.Client
	// objects are the objects of the application.
	objects []*unstructured.Unstructured
	// apply applies objects with a tool, which prunes others, and returns what failed.
	apply func(ctx context.Context, objects []*unstructured.Unstructured) (failed []string, _ error)
}

// start prepares a cluster for an application. No tool has applied it.
func start(t *testing.T) *plane {
	t.Helper()
	p := &plane{Cluster: cluster.Own(t, cluster.Options{Module: "."}), t: t}
	p.kube = p.Client(t)
	p.must(p.LoadGatewayAPI(t.Context()))
	_, err := p.kube.Kube().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}, metav1.CreateOptions{})
	p.must(err)
	program := filepath.Join(t.TempDir(), "pilot")
	p.must(example.Build(t.Context(), filepath.Join("..", "..", ".."), "./cmd/pilot", program, "-trimpath", "-buildvcs=false", "-ldflags=-s -w"))
	node.Start(t, node.Options{Config: p.Admin(), Dir: t.TempDir(), Images: map[string]string{"pilot": program}})
	bundle := filepath.Join(t.TempDir(), "root-cert.pem")
	p.must(os.WriteFile(bundle, p.Admin().CAData, 0o600))
	for _, name := range []string{"stable", "tags"} {
		content, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", "kustomize", name, "rendered.yaml"))
		p.must(err)
		// The Pods of this node are processes of one machine, without volumes.
		text := strings.NewReplacer(`"--address=:15014"`, `"--address=$(POD_IP):15014"`, "/etc/incumbent/ca/root-cert.pem", bundle).Replace(string(content))
		objects, err := enginekube.SplitYAML([]byte(text))
		p.must(err)
		p.objects = append(p.objects, objects...)
	}
	for _, o := range p.objects {
		if o.GetKind() == "Deployment" {
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			p.must(err)
			pilot := containers[0].(map[string]any)
			delete(pilot, "volumeMounts")
			pilot["args"] = append(pilot["args"].([]any), "--lease-duration=15s", "--renew-deadline=10s", "--retry-period=2s")
			p.must(unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
			unstructured.RemoveNestedField(o.Object, "spec", "template", "spec", "volumes")
		}
	}
	return p
}

func (p *plane) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// sync applies objects, and returns what failed.
func (p *plane) sync(objects []*unstructured.Unstructured) (failed []string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	copies := make([]*unstructured.Unstructured, 0, len(objects))
	for _, o := range objects {
		copies = append(copies, o.DeepCopy())
	}
	failed, err := p.apply(ctx, copies)
	p.must(err)
	return failed
}

// mustSync fails the test if an object fails.
func (p *plane) mustSync(objects []*unstructured.Unstructured) {
	p.t.Helper()
	if failed := p.sync(objects); len(failed) > 0 {
		p.t.Fatalf("the sync failed: %q", failed)
	}
}

// with returns the objects of the application after a change of the copy of one kind.
func (p *plane) with(kind string, change func(o *unstructured.Unstructured)) (objects []*unstructured.Unstructured) {
	for _, o := range p.objects {
		if o.GetKind() == kind {
			o = o.DeepCopy()
			change(o)
		}
		objects = append(objects, o)
	}
	return objects
}

// lock is the state of a lock that no deployment tool may change: the object and the term.
type lock struct {
	uid    types.UID
	term   string
	marked bool // for deletion
}

// read returns the locks. A missing lock is an error.
func (p *plane) read() (map[string]lock, error) {
	found := map[string]lock{}
	var errs []error
	put := func(o metav1.Object, err error) {
		errs = append(errs, err)
		holder := strings.Fields(o.GetAnnotations()[marker]) // v1, holder, number of the term, states
		found[o.GetName()] = lock{o.GetUID(), strings.Join(holder[:min(len(holder), 3)], " "), o.GetDeletionTimestamp() != nil}
	}
	for _, name := range []string{"istio-namespace-controller-election", "istio-leader"} {
		o, err := p.kube.Kube().CoreV1().ConfigMaps(home).Get(p.t.Context(), name, metav1.GetOptions{})
		put(o, err)
	}
	for _, name := range []string{deploymentLock, "istio-gateway-status-leader-stable"} {
		o, err := p.kube.Kube().CoordinationV1().Leases(home).Get(p.t.Context(), name, metav1.GetOptions{})
		put(o, err)
	}
	return found, errors.Join(errs...)
}

func (p *plane) locks() map[string]lock {
	p.t.Helper()
	found, err := p.read()
	p.must(err)
	return found
}

// deploymentLock is the lock that earlier charts contained as a hook.
const deploymentLock = "istio-gateway-deployment-stable"

// awaitLeaders waits until each election has a leader that acts.
func (p *plane) awaitLeaders() (found map[string]lock) {
	p.t.Helper()
	harness.Until(p.t, "each election has a leader", func() bool {
		var err error
		found, err = p.read()
		for _, l := range found {
			if l.term == "" {
				return false
			}
		}
		return err == nil
	})
	return found
}

// kubectl runs kubectl in the namespace of the control plane.
func (p *plane) kubectl(input string, args ...string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, p.Kubectl(), append([]string{"--kubeconfig", p.Kubeconfig(), "--namespace", home}, args...)...)
	command.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	if err := command.Run(); err != nil {
		p.t.Fatalf("kubectl %q: %v\n%s", args, err, out.String())
	}
	return out.String()
}

func (p *plane) deployment() *appsv1.Deployment {
	p.t.Helper()
	d, err := p.kube.Kube().AppsV1().Deployments(home).Get(p.t.Context(), "pilot-stable", metav1.GetOptions{})
	p.must(err)
	return d
}

// awaitReady waits until the number of replicas is ready.
func (p *plane) awaitReady(n int32) {
	p.t.Helper()
	harness.Until(p.t, fmt.Sprintf("%d replicas are ready", n), func() bool {
		d := p.deployment()
		return d.Status.ReadyReplicas == n && d.Status.Replicas == n && d.Status.ObservedGeneration == d.Generation
	})
}
