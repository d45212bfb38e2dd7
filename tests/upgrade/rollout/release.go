package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/internal/testutil/helm"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

const (
	// port serves health, metrics and the state of elections, PagePort the elections page.
	port     = 15014
	PagePort = 15016
)

// values returns the values of the chart.
func (r *Rollout) values(release Release) map[string]any {
	mode := "deny"
	if r.options.WithoutFence {
		mode = "none"
	}
	values := map[string]any{
		"image": image, "replicas": release.Replicas, "address": fmt.Sprintf("$(POD_IP):%d", port),
		"debugAddress": fmt.Sprintf("$(POD_IP):%d", PagePort),
		"caBundle":     map[string]any{"file": r.BundleFile()},
		"elections": map[string]any{
			"enabled":       !release.WithoutElections,
			"leaseDuration": r.options.Lease.String(), "renewDeadline": r.options.Renew.String(), "retryPeriod": r.options.Retry.String(),
		},
		"fence":      map[string]any{"mode": mode, "others": r.options.FenceOthers},
		"gatewayAPI": map[string]any{"overlayFields": []string{"deployment.spec.template.spec.containers.env"}}, // the time in which proxies drain
	}
	if r.options.Coordinated {
		elections := values["elections"].(map[string]any)
		elections["lock"] = "lease"
		elections["strategy"] = coordination.DefaultRevision
	}
	if release.Image != "" {
		values["image"] = release.Image
	}
	return values
}

// Helm runs Helm in the control plane's namespace.
func (r *Rollout) Helm(ctx context.Context, args ...string) (string, error) {
	program := helm.Helm{
		Program: r.options.Helm, Namespace: Namespace, Kubeconfig: r.Cluster.Kubeconfig(), Home: filepath.Join(r.Cluster.Dir(), "helm"),
	}
	return program.Run(ctx, args...)
}

// Apply installs a revision, or upgrades it in place, without waiting.
func (r *Rollout) Apply(ctx context.Context, release Release) error {
	content, err := yaml.Marshal(r.values(release))
	if err != nil {
		return fmt.Errorf("encode chart values: %w", err)
	}
	file := filepath.Join(r.Cluster.Dir(), release.Revision+"-values.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		return fmt.Errorf("write chart values: %w", err)
	}
	if _, err := r.Helm(ctx, "upgrade", "--install", release.Revision, filepath.Join(r.options.Charts, "pilot"), "--values="+file, "--server-side=false"); err != nil {
		return err
	}
	if !release.WithoutRights {
		return nil
	}
	name := "pilot-" + release.Revision
	return errors.Join(
		ignoreMissing(r.Kube.RbacV1().ClusterRoleBindings().Delete(ctx, name+"."+Namespace, metav1.DeleteOptions{})),
		ignoreMissing(r.Kube.RbacV1().RoleBindings(Namespace).Delete(ctx, name, metav1.DeleteOptions{})),
	)
}

// Install installs a revision and waits until its Pods are ready and lead their own elections.
func (r *Rollout) Install(ctx context.Context, release Release) error {
	r.Step(fmt.Sprintf("install revision %s with %d replicas", release.Revision, release.Replicas))
	if err := r.Apply(ctx, release); err != nil {
		return err
	}
	if err := r.AwaitReady(ctx, release.Revision, int(release.Replicas)); err != nil {
		return err
	}
	return r.AwaitOwnElections(ctx, release.Revision)
}

// Uninstall uninstalls a revision and deletes the locks of its own elections.
func (r *Rollout) Uninstall(ctx context.Context, revision string) error {
	r.Step("uninstall revision " + revision)
	if _, err := r.Helm(ctx, "uninstall", revision); err != nil {
		return err
	}
	if err := r.AwaitReady(ctx, revision, 0); err != nil {
		return err
	}
	_, perRevision := bootstrap.Elections(bootstrap.Config{})
	for _, id := range perRevision {
		err := r.Kube.CoordinationV1().Leases(Namespace).Delete(ctx, id+"-"+revision, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete lock %s-%s: %w", id, revision, err)
		}
	}
	return nil
}

// Flip waits until a replica of a revision is available, and makes the revision the default revision by the chart.
func (r *Rollout) Flip(ctx context.Context, revision string) error {
	err := r.Await(ctx, "a replica of "+revision+" is available", func(ctx context.Context) (bool, error) {
		all, err := r.Kube.AppsV1().Deployments(Namespace).List(ctx, metav1.ListOptions{LabelSelector: tagging.Label + "=" + revision})
		return err == nil && slices.ContainsFunc(all.Items, func(d appsv1.Deployment) bool { return d.Status.AvailableReplicas > 0 }), err
	})
	if err != nil {
		return err
	}
	r.Step("make " + revision + " the default revision")
	_, err = r.Helm(ctx, "upgrade", "--install", "tags", filepath.Join(r.options.Charts, "tags"), "--set=default="+revision, "--server-side=false")
	return err
}

// Lead makes a revision the default revision, and waits until it leads and every object is in its desired state.
func (r *Rollout) Lead(ctx context.Context, revision string) error {
	if err := r.Flip(ctx, revision); err != nil {
		return err
	}
	if err := r.AwaitLeads(ctx, revision); err != nil {
		return err
	}
	_, err := r.AwaitWanted(ctx)
	return err
}

// UpgradeAndBack upgrades from stable to canary and back under load. At the end only stable is installed.
func (r *Rollout) UpgradeAndBack(ctx context.Context) error {
	stable, canary := Release{Revision: "stable", Replicas: 3}, Release{Revision: "canary", Replicas: 2}
	for _, step := range []func() error{
		func() error { return r.Install(ctx, stable) },
		func() error { return r.Lead(ctx, stable.Revision) },
		func() error { return r.StartLoad(ctx) },
		func() error { return r.Install(ctx, canary) },
		func() error { return r.Lead(ctx, canary.Revision) },
		func() error { return r.Uninstall(ctx, stable.Revision) },
		func() error { return r.Install(ctx, stable) },
		func() error { return r.Lead(ctx, stable.Revision) },
		func() error { return r.Uninstall(ctx, canary.Revision) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// FlipLabel makes a revision the default revision by the label alone, which takes less than a second.
func (r *Rollout) FlipLabel(ctx context.Context, revision string) error {
	r.Step("label " + revision + " as the default revision")
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, tagging.Label, revision)
	_, err := r.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().
		Patch(ctx, tagging.DefaultTagWebhook(Namespace), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Leftovers returns the objects that remain after everything was uninstalled. The shared locks and the permanent fence
// policies are not included.
func (r *Rollout) Leftovers(ctx context.Context) (left []string, err error) {
	objects, err := r.Kubectl(ctx, nil, "get", "--namespace", Namespace, "--output=name", "deployments,pods,serviceaccounts,secrets,roles,rolebindings,"+
		"clusterroles,clusterrolebindings,mutatingwebhookconfigurations,services,poddisruptionbudgets,flowschemas,validatingadmissionpolicies")
	if err != nil {
		return nil, err
	}
	fences, err := r.Kubectl(ctx, nil, "get", "--output=name", "validatingadmissionpolicies", "--selector=incumbent.dev/fence")
	if err != nil {
		return nil, err
	}
	for object := range strings.FieldsSeq(objects) {
		_, name, _ := strings.Cut(object, "/")
		if strings.HasPrefix(name, "pilot-") || strings.HasPrefix(name, "istio-revision-tag") || strings.HasPrefix(name, "sh.helm") {
			left = append(left, object)
		}
	}
	return append(left, strings.Fields(fences)...), nil
}

// Kubectl runs kubectl as administrator and returns its output.
func (r *Rollout) Kubectl(ctx context.Context, input []byte, args ...string) (string, error) {
	command := exec.CommandContext(ctx, r.Cluster.Kubectl(), append([]string{"--kubeconfig", r.Cluster.Kubeconfig()}, args...)...)
	command.Stdin = bytes.NewReader(input)
	var errs bytes.Buffer
	command.Stderr = &errs
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, errs.String())
	}
	return string(output), nil
}
