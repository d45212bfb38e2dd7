package ctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

func (p *Program) defaults() *cobra.Command {
	root := &cobra.Command{
		Use: "default", Short: "Which revision is the default, and change it",
		Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	get := &cobra.Command{
		Use: "get", Short: "Print the default revision", Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.connect()
			if err != nil {
				return err
			}
			hook, err := c.tag(cmd.Context())
			if err != nil {
				return err
			}
			safe{p.Out}.line("%s", or(hook.Labels[revisionLabel], "none"))
			return nil
		},
	}
	var yes bool
	set := &cobra.Command{
		Use: "set REVISION", Short: "Make a revision the default one, after a plan",
		Long: `Shows what would happen (plan), asks, and changes the label of the webhook istio-revision-tag-default. It does so only where
the chart tags of this project made it: that webhook injects nothing. istioctl's carries real injection webhooks, of which a label
alone would leave the old revision's; there the istioctl command to run is printed, and nothing is changed.`,
		Args: exactly("revision"),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, to string) ([]string, cobra.ShellCompDirective) {
			return p.completeRevisions(cmd, args, to)
		},
		RunE: func(cmd *cobra.Command, args []string) error { return p.setDefault(cmd.Context(), args[0], yes) },
	}
	set.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask; needed without a terminal")
	root.AddCommand(get, set)
	return root
}

// tag is the webhook of the default revision; an empty one when there is none.
func (c *clients) tag(ctx context.Context) (*admissionv1.MutatingWebhookConfiguration, error) {
	hook, err := c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, defaultTag, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &admissionv1.MutatingWebhookConfiguration{}, nil
	}
	return hook, err
}

func (p *Program) setDefault(ctx context.Context, revision string, yes bool) error {
	if problems := validation.IsDNS1123Label(revision); len(problems) > 0 {
		return withCode(Misused, "%q is no revision: %s", revision, problems[0])
	}
	c, err := p.connect()
	if err != nil {
		return err
	}
	hook, err := c.tag(ctx)
	if err != nil {
		return err
	}
	now := hook.Labels[revisionLabel]
	if hook.Name != "" && now == revision {
		safe{p.Out}.line("%s is the default revision already.", revision)
		return nil
	}
	p.all = true // rank counts in all namespaces
	if err := p.showPlan(ctx, c, &output{flags: tableOnly()}, revision); err != nil {
		return err
	}
	fmt.Fprintln(p.Out)
	if err := notOurs(hook, revision); err != nil {
		return err
	}
	if err := p.ask(fmt.Sprintf("The default revision becomes %s; it is %s now.", revision, or(now, "none")), yes); err != nil {
		return err
	}
	hook.Labels[revisionLabel] = revision
	if _, err := c.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, hook, metav1.UpdateOptions{}); err != nil {
		if apierrors.IsConflict(err) {
			return withCode(Refused, "the webhook %s was changed meanwhile, and nothing was done: look again", defaultTag)
		}
		return err
	}
	safe{p.Out}.line("The default revision is %s; it was %s. See the elections move: %s watch -A", revision, or(now, "none"), name())
	if release := hook.Annotations["meta.helm.sh/release-name"]; release != "" {
		safe{p.Out}.line("Its Helm release says otherwise until you tell it: helm upgrade %s --namespace %s --reuse-values --set default=%s",
			release, hook.Annotations["meta.helm.sh/release-namespace"], revision)
	}
	return nil
}

// notOurs says why the tag is not ours to change, and what changes it.
func notOurs(hook *admissionv1.MutatingWebhookConfiguration, revision string) error {
	switch {
	case hook.Name == "":
		return withCode(NotFound, "there is no webhook %s, and nothing was done: install the chart tags with --set default=%s, or where Istio runs: istioctl tag set default --revision %s", defaultTag, revision, revision)
	case hook.Labels["app.kubernetes.io/part-of"] != "incumbent" || len(hook.Webhooks) > 0:
		return withCode(Refused, "the webhook %s is not of our chart, and nothing was done; run: istioctl tag set default --revision %s --overwrite", defaultTag, revision)
	}
	return nil
}
