package ctl

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	admissionconfig "k8s.io/client-go/applyconfigurations/admissionregistration/v1"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/tagging"
)

func (p *Program) defaults() *cobra.Command {
	root := &cobra.Command{
		Use: "default", Short: "Show or change the default revision",
		Args: onlyCommands, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	get := &cobra.Command{
		Use: "get", Short: "Print the default revision", Args: exactly(),
		RunE: p.connected(nil, func(ctx context.Context, c *clients, _ []string) error {
			_, revision, err := c.tag(ctx)
			if err != nil {
				return err
			}
			safe{p.Out}.line("%s", cmp.Or(revision, "none"))
			return nil
		}),
	}
	var yes bool
	set := &cobra.Command{
		Use: "set REVISION", Short: "Change the default revision",
		Long: `Shows the plan, asks for confirmation, and changes the label of the webhook istio-revision-tag-default, or of
istio-revision-tag-default-NAMESPACE if it exists. Works only on a tag installed by this project's ` + "`tags`" + ` chart. For a tag created by istioctl, changing the label would not update its injection webhooks,
so the command prints the istioctl command to run and changes nothing.`,
		Args: exactly("revision"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			p.all = true // as the plan
			return p.completeRevisions(cmd, args, word)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.setDefault(cmd.Context(), args[0], yes) },
	}
	set.Flags().BoolVarP(&yes, "yes", "y", false, "skip the confirmation prompt (required when stdin is not a terminal)")
	root.AddCommand(get, set)
	return root
}

// tag returns the default revision of the selected namespace, as its elections use it, and the webhook of DefaultTagWebhooks to
// change. The webhook is empty if none exists.
func (c *clients) tag(ctx context.Context) (hook *admissionv1.MutatingWebhookConfiguration, revision string, err error) {
	hooks := []*admissionv1.MutatingWebhookConfiguration{}
	for _, name := range tagging.DefaultTagWebhooks(c.at) {
		hook, err = c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			hooks = append(hooks, hook)
		}
		if revision = tagging.DefaultRevision(c.at, hooks...); revision != "" {
			return hooks[0], revision, nil
		}
	}
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return nil, "", err
	case len(hooks) == 0:
		return &admissionv1.MutatingWebhookConfiguration{}, "", nil
	}
	return hooks[0], "", nil
}

func (p *Program) setDefault(ctx context.Context, revision string, yes bool) error {
	if problems := validation.IsDNS1123Label(revision); len(problems) > 0 {
		return withCode(misused, "invalid revision %q: %s", revision, problems[0])
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	hook, now, err := c.tag(ctx)
	if err != nil {
		return err
	}
	if hook.Name != "" && now == revision {
		safe{p.Out}.line("%s is already the default revision.", revision)
		return nil
	}
	p.all = true // rank is in effect in all namespaces
	c.at = metav1.NamespaceAll
	if err := p.showPlan(ctx, c, &output{flags: genericclioptions.NewPrintFlags("")}, revision); err != nil {
		return err
	}
	fmt.Fprintln(p.Out)
	if err := notOurs(hook, revision); err != nil {
		return err
	}
	if err := p.ask(ctx, fmt.Sprintf("The default revision will change to %s; it is now %s.", revision, cmp.Or(now, "none")), yes); err != nil {
		return err
	}
	hook.Labels[tagging.Label] = revision
	if err := c.applyTag(ctx, hook); err != nil {
		if apierrors.IsConflict(err) {
			return withCode(Refused, "webhook %s was changed concurrently; nothing was changed: try again", hook.Name)
		}
		return err
	}
	safe{p.Out}.line("The default revision is %s; it was %s. Follow the elections: %s watch -A", revision, cmp.Or(now, "none"), name())
	if release := hook.Annotations["meta.helm.sh/release-name"]; release != "" {
		safe{p.Out}.line("Update its Helm release: helm upgrade %s %s --namespace %s --reset-then-reuse-values --set default=%s",
			release, install.Chart("tags"), hook.Annotations["meta.helm.sh/release-namespace"], revision)
	}
	return nil
}

// applyTag writes the labels of the webhook with Helm's field manager, so that the next `helm upgrade` has no conflict.
func (c *clients) applyTag(ctx context.Context, hook *admissionv1.MutatingWebhookConfiguration) error {
	config := admissionconfig.MutatingWebhookConfiguration(hook.Name).WithResourceVersion(hook.ResourceVersion).
		WithLabels(hook.Labels).WithAnnotations(hook.Annotations)
	_, err := c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().
		Apply(ctx, config, metav1.ApplyOptions{FieldManager: "helm", Force: true})
	return err
}

// notOurs returns an error if the tag was not installed by this project.
func notOurs(hook *admissionv1.MutatingWebhookConfiguration, revision string) error {
	switch {
	case hook.Name == "":
		return withCode(NotFound, "webhook %s not found; nothing was changed: install the chart tags with --set default=%s, or with Istio: istioctl tag set default --revision %s", defaultTag, revision, revision)
	case hook.Labels["app.kubernetes.io/part-of"] != "incumbent" || len(hook.Webhooks) > 0:
		return withCode(Refused, "webhook %s was not installed by the chart tags; nothing was changed: run istioctl tag set default --revision %s --overwrite", hook.Name, revision)
	}
	return nil
}
