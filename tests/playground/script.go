package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
)

const (
	// image is what the Deployments call the server's program.
	image = "pilot"
	// nodeName is the process node's; there is no other in a cluster of our own.
	nodeName = "incumbent"
	// port is where the servers answer.
	port = 15014
)

// install puts the control plane into the cluster, one revision after the other: the
// default one is there when the next one comes, as in an upgrade.
func (s *stage) install(ctx context.Context, bundleFile string) error {
	values := manifests.Values{
		Namespace: systemNamespace,
		Image:     image,
		Replicas:  replicas,
		Address:   fmt.Sprintf("$(POD_IP):%d", port),
		CABundle:  bundleFile,

		LeaseDuration: s.timing.lease, RenewDeadline: s.timing.renew, RetryPeriod: s.timing.retry,
	}
	values.Env = map[string]string{"ENABLE_WRITE_FENCE": "true"}
	if s.lawless {
		values.Env = map[string]string{"ENABLE_LEADER_ELECTION": "false"}
	}
	maps.Copy(values.Env, s.env)
	if err := s.props.make(ctx, namespaceObject(systemNamespace), defaultTag(revisions[0])); err != nil {
		return err
	}
	of := func(revision string) manifests.Values {
		values := values
		values.Revision, values.Rights = revision, bootstrap.Rights(bootstrap.Config{Revision: revision})
		return values
	}
	for _, revision := range revisions {
		access, err := manifests.MakeAccess(of(revision))
		if err != nil {
			return err
		}
		if err := s.props.make(ctx, access.Objects()...); err != nil {
			return err
		}
	}
	if err := s.putFence(ctx); err != nil {
		return err
	}
	s.installed = time.Now()
	for i, revision := range revisions {
		deployment, err := manifests.MakeDeployment(of(revision))
		if err != nil {
			return err
		}
		if s.cluster.External() {
			// Its own scheduler and node controller are to leave these pods alone.
			pods := &deployment.Spec.Template.Spec
			pods.NodeName = nodeName
			pods.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		}
		if err := s.props.make(ctx, deployment); err != nil {
			return err
		}
		if err := s.awaitReady(ctx, i+1); err != nil {
			return err
		}
	}
	return nil
}

// lockNames are the names of all lock objects of all revisions.
func lockNames() []string {
	names, perRevision := bootstrap.Elections(bootstrap.Config{})
	names = slices.Clone(names)
	for _, id := range perRevision {
		for _, revision := range revisions {
			names = append(names, id+"-"+revision)
		}
	}
	return names
}

func namespaceObject(name string) *corev1.Namespace {
	return &corev1.Namespace{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}
}

// defaultTag is the webhook whose label says which revision is the default. It has no
// hooks: this cluster injects nothing.
func defaultTag(revision string) *admissionv1.MutatingWebhookConfiguration {
	return &admissionv1.MutatingWebhookConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "MutatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{
			Name:   defaultWebhook,
			Labels: map[string]string{revisionLabel: revision, "istio.io/tag": "default"},
		},
	}
}
