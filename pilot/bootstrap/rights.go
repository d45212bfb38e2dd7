package bootstrap

import (
	rbacv1 "k8s.io/api/rbac/v1"

	"incumbent.dev/incumbent/pilot/bootstrap/manifests"
	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
	"incumbent.dev/incumbent/pilot/controllers/gatewaystatus"
	"incumbent.dev/incumbent/pilot/controllers/namespace"
	"incumbent.dev/incumbent/pkg/revisions"
)

// writeEvents is about a controller's objects, which may lie anywhere.
var writeEvents = rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}

// namespaceRights: keep one ConfigMap in every namespace. Its creation cannot be narrowed to a name.
func namespaceRights(Config) manifests.Rights {
	return manifests.Rights{Everywhere: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}},
		{
			APIGroups: []string{""}, Resources: []string{"configmaps"},
			ResourceNames: []string{namespace.ConfigMapName}, Verbs: []string{"list", "watch", "patch"},
		},
	}}
}

// ingressRights: read Ingresses, their classes and what the addresses come from, write their
// status, and Events about them.
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

// gatewayStatusRights: read all that a status depends on, and write it; the class istio, too, unless others make it.
func gatewayStatusRights(config Config) manifests.Rights {
	return manifests.Rights{Everywhere: gatewaystatus.ClusterRules(!config.DisableGatewayClass)}
}

// gatewayDeploymentRights: read Gateways and what they refer to, make and change what they need, and write Events about them.
func gatewayDeploymentRights(Config) manifests.Rights {
	return manifests.Rights{Everywhere: append(gatewaydeploy.ClusterRules(), writeEvents)}
}

// tagRights: read the tags of revisions. Webhooks are found by their labels, of which RBAC knows nothing.
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
