package rollout

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/testutil/helm"
	"incumbent.dev/incumbent/pilot/bootstrap"
)

// port is where the servers answer.
const port = 15014

// values are those of the chart.
func (r *Rollout) values(release Release) map[string]any {
	mode := "deny"
	if r.options.Unfenced {
		mode = "none"
	}
	values := map[string]any{
		"image": image, "replicas": release.Replicas, "address": fmt.Sprintf("$(POD_IP):%d", port),
		"caBundle": map[string]any{"file": r.BundleFile()},
		"elections": map[string]any{
			"enabled":       !release.Lawless,
			"leaseDuration": r.options.Lease.String(), "renewDeadline": r.options.Renew.String(), "retryPeriod": r.options.Retry.String(),
		},
		"fence": map[string]any{"mode": mode},
	}
	if release.Image != "" {
		values["image"] = release.Image
	}
	if release.Node != "" {
		values["pod"] = map[string]any{"nodeName": release.Node}
	}
	return values
}

// Helm runs helm in the control plane's namespace.
func (r *Rollout) Helm(ctx context.Context, args ...string) (string, error) {
	program := helm.Helm{
		Program: r.options.Helm, Namespace: Home, Kubeconfig: r.Cluster.Kubeconfig(), Home: filepath.Join(r.Cluster.Dir(), "helm"),
	}
	return program.Run(ctx, args...)
}

// Apply installs a revision, or upgrades it in place. It does not wait.
func (r *Rollout) Apply(ctx context.Context, release Release) error {
	content, err := yaml.Marshal(r.values(release))
	if err != nil {
		return fmt.Errorf("encoding the chart's values: %w", err)
	}
	file := filepath.Join(r.Cluster.Dir(), release.Revision+"-values.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("writing the chart's values: %w", err)
	}
	if _, err := r.Helm(ctx, "upgrade", "--install", release.Revision, filepath.Join(r.options.Charts, "pilot"), "--values="+file); err != nil {
		return err
	}
	if !release.Powerless {
		return nil
	}
	name := "pilot-" + release.Revision
	return errors.Join(
		ignoreMissing(r.Kube.RbacV1().ClusterRoleBindings().Delete(ctx, name+"."+Home, metav1.DeleteOptions{})),
		ignoreMissing(r.Kube.RbacV1().RoleBindings(Home).Delete(ctx, name, metav1.DeleteOptions{})),
	)
}

// Install installs a revision, and waits until its servers are ready and lead their own elections.
func (r *Rollout) Install(ctx context.Context, release Release) error {
	r.Step(ctx, fmt.Sprintf("install %s, %d replicas", release.Revision, release.Replicas))
	if err := r.Apply(ctx, release); err != nil {
		return err
	}
	if err := r.AwaitReady(ctx, release.Revision, int(release.Replicas)); err != nil {
		return err
	}
	return r.AwaitOwn(ctx, release.Revision)
}

// Uninstall takes a revision away, and the locks that are its own and that nobody needs any more.
func (r *Rollout) Uninstall(ctx context.Context, revision string) error {
	r.Step(ctx, "uninstall "+revision)
	if _, err := r.Helm(ctx, "uninstall", revision); err != nil {
		return err
	}
	if err := r.AwaitReady(ctx, revision, 0); err != nil {
		return err
	}
	_, perRevision := bootstrap.Elections(bootstrap.Config{})
	for _, id := range perRevision {
		err := r.Kube.CoordinationV1().Leases(Home).Delete(ctx, id+"-"+revision, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the lock %s-%s: %w", id, revision, err)
		}
	}
	return nil
}

// Flip makes a revision the default one, by the chart.
func (r *Rollout) Flip(ctx context.Context, revision string) error {
	r.Step(ctx, "flip the default to "+revision)
	_, err := r.Helm(ctx, "upgrade", "--install", "tags", filepath.Join(r.options.Charts, "tags"), "--set=default="+revision)
	return err
}

// FlipAtOnce makes a revision the default one by the label alone, which takes less than a second.
func (r *Rollout) FlipAtOnce(ctx context.Context, revision string) error {
	r.Step(ctx, "flip the default to "+revision+" at once")
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"istio.io/rev":%q}}}`, revision)
	_, err := r.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().
		Patch(ctx, "istio-revision-tag-default", types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Traces are the names of what an upgrade leaves behind, once all is uninstalled, but for what stays on purpose: the shared
// locks, and the policies that keep the API server's view of locks alive.
func (r *Rollout) Traces(ctx context.Context) (left []string, err error) {
	has := func(kind, name string) {
		if strings.HasPrefix(name, "pilot-") || strings.HasPrefix(name, "istio-revision-tag") || strings.HasPrefix(name, "sh.helm") {
			left = append(left, kind+" "+name)
		}
	}
	for kind, path := range map[string]string{
		"deployment": "/apis/apps/v1/namespaces/" + Home + "/deployments", "pod": "/api/v1/namespaces/" + Home + "/pods",
		"account": "/api/v1/namespaces/" + Home + "/serviceaccounts", "secret": "/api/v1/namespaces/" + Home + "/secrets",
		"role":           "/apis/rbac.authorization.k8s.io/v1/namespaces/" + Home + "/roles",
		"binding":        "/apis/rbac.authorization.k8s.io/v1/namespaces/" + Home + "/rolebindings",
		"cluster role":   "/apis/rbac.authorization.k8s.io/v1/clusterroles",
		"cluster's":      "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		"webhook":        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
		"service":        "/api/v1/namespaces/" + Home + "/services",
		"budget":         "/apis/policy/v1/namespaces/" + Home + "/poddisruptionbudgets",
		"flow schema":    "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas",
		"fence's policy": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	} {
		raw, err := r.Kube.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing what is left: %w", err)
		}
		var all metav1.PartialObjectMetadataList
		if err := yaml.Unmarshal(raw, &all); err != nil {
			return nil, fmt.Errorf("reading what is left: %w", err)
		}
		for _, o := range all.Items {
			has(kind, o.Name)
			if kind == "fence's policy" && o.Labels["incumbent.dev/fence"] != "" {
				left = append(left, kind+" "+o.Name)
			}
		}
	}
	slices.Sort(left)
	return left, nil
}
