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

	"github.com/argoproj/argo-cd/gitops-engine/pkg/cache"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/engine"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync"
	"github.com/argoproj/argo-cd/gitops-engine/pkg/sync/common"
	enginekube "github.com/argoproj/argo-cd/gitops-engine/pkg/utils/kube"
	"github.com/go-logr/logr"
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
	home    = "istio-system"
	tracker = "argocd.argoproj.io/tracking-id"
	marker  = "incumbent.dev/leader"
)

func TestMain(m *testing.M) { cluster.Main(m, cluster.Options{Module: "."}) }

// plane is a control plane that an application installs.
type plane struct {
	*cluster.Cluster
	t      *testing.T
	kube   kube.Client
	engine engine.GitOpsEngine
	// objects are those of the application.
	objects []*unstructured.Unstructured
}

// tracked is what the cache of the engine stores about an object.
type tracked struct{ by string }

func start(t *testing.T) *plane {
	t.Helper()
	p := &plane{Cluster: cluster.Shared(t), t: t}
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
		p.track(o)
	}
	objects := cache.NewClusterCache(p.Admin(), cache.SetLogr(logr.Discard()), cache.SetPopulateResourceInfoHandler(func(o *unstructured.Unstructured, _ bool) (any, bool) {
		by := o.GetAnnotations()[tracker]
		return tracked{by}, by != ""
	}))
	p.engine = engine.NewEngine(p.Admin(), objects, engine.WithLogr(logr.Discard()))
	stop, err := p.engine.Run()
	p.must(err)
	t.Cleanup(stop)
	return p
}

func (p *plane) must(err error) {
	p.t.Helper()
	if err != nil {
		p.t.Fatal(err)
	}
}

// track marks an object as a part of the application.
func (p *plane) track(o *unstructured.Unstructured) {
	annotations := o.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[tracker] = trackerOf(enginekube.GetResourceKey(o))
	o.SetAnnotations(annotations)
}

func trackerOf(key enginekube.ResourceKey) string { return "plane:" + key.String() }

// sync synchronizes the application with pruning, and returns the objects that failed.
func (p *plane) sync(objects []*unstructured.Unstructured, options ...sync.SyncOpt) (failed []string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 30*time.Second)
	defer cancel()
	copies := make([]*unstructured.Unstructured, 0, len(objects))
	for _, o := range objects {
		copies = append(copies, o.DeepCopy())
	}
	managed := func(r *cache.Resource) bool {
		return r.Info.(tracked).by == trackerOf(r.ResourceKey())
	}
	results, err := p.engine.Sync(ctx, copies, managed, "1", home, append(options, sync.WithPrune(true), sync.WithLogr(logr.Discard()))...)
	p.must(err)
	for _, r := range results {
		if r.Status == common.ResultCodeSyncFailed || r.HookPhase == common.OperationFailed || r.HookPhase == common.OperationError {
			failed = append(failed, r.ResourceKey.Kind+" "+r.ResourceKey.Name+": "+r.Message)
		}
	}
	return failed
}

// mustSync fails the test if an object fails.
func (p *plane) mustSync(objects []*unstructured.Unstructured, options ...sync.SyncOpt) {
	p.t.Helper()
	if failed := p.sync(objects, options...); len(failed) > 0 {
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
	uid  types.UID
	term string
}

// read returns the locks. A lock that is missing or marked for deletion is an error.
func (p *plane) read() (map[string]lock, error) {
	found := map[string]lock{}
	var errs []error
	put := func(o metav1.Object, err error) {
		if err == nil && o.GetDeletionTimestamp() != nil {
			err = fmt.Errorf("lock %s is marked for deletion", o.GetName())
		}
		errs = append(errs, err)
		holder := strings.Fields(o.GetAnnotations()[marker]) // v1, holder, number of the term, states
		found[o.GetName()] = lock{o.GetUID(), strings.Join(holder[:min(len(holder), 3)], " ")}
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
