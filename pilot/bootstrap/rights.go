package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/gatewaystatus"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pkg/revisions"
)

// writeEvents allows Events about objects in any namespace.
var writeEvents = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}

// defaultTagRights allows reading the webhook of the default revision that is named for a namespace other than istio-system.
func defaultTagRights(namespace string) (all manifests.Rights) {
	if name := revisions.DefaultTagWebhook(namespace); name != revisions.DefaultTagWebhook("") {
		all.Everywhere = []rbacv1.PolicyRule{{
			APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"},
			ResourceNames: []string{name}, Verbs: []string{"get", "list", "watch"},
		}}
	}
	return all
}

// namespaceRights allows one ConfigMap in every namespace, and Events. RBAC cannot restrict create to a name.
func namespaceRights(Config) manifests.Rights {
	return manifests.Rights{Everywhere: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		{
			APIGroups: []string{""}, Resources: []string{"configmaps"},
			ResourceNames: []string{namespace.ConfigMapName}, Verbs: []string{"list", "watch", "patch"},
		},
		writeEvents,
	}}
}

// ingressRights allows reading Ingresses, their classes and the sources of addresses, and writing their status and Events.
func ingressRights(config Config) manifests.Rights {
	read := []string{"list", "watch"}
	return manifests.Rights{
		Home: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"services"}, ResourceNames: []string{config.IngressService}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: read},
		},
		Everywhere: []rbacv1.PolicyRule{
			{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses", "ingressclasses"}, Verbs: read},
			{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"ingresses/status"}, Verbs: []string{"patch"}},
			{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: read},
			writeEvents,
		},
	}
}

// gatewayStatusRights allows reading everything that a status depends on, writing it, and creating the class istio.
func gatewayStatusRights(config Config) manifests.Rights {
	return manifests.Rights{Everywhere: gatewaystatus.ClusterRules(!config.DisableGatewayClass)}
}

// gatewayDeploymentRights allows reading Gateways and the objects that they refer to, and writing their deployments and
// Events.
func gatewayDeploymentRights(Config) manifests.Rights {
	return manifests.Rights{Everywhere: append(gatewaydeploy.ClusterRules(), writeEvents)}
}

// tagRights allows reading the tags of revisions. Webhooks are selected by labels, which RBAC cannot express.
func tagRights() manifests.Rights {
	read := []string{"list", "watch"}
	return manifests.Rights{
		Home: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: read}},
		Everywhere: []rbacv1.PolicyRule{
			{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"}, Verbs: read},
			{
				APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"validatingwebhookconfigurations"},
				ResourceNames: []string{revisions.DefaultValidator}, Verbs: read,
			},
		},
	}
}
