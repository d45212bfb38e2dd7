package gateway

import (
	"context"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/revisions"
)

// revision runs the server of a revision in a namespace until the test ends.
func (p *plane) revision(namespace, revision string) *replica {
	p.Helper()
	other := *p
	other.config.Namespace, other.config.Revision = namespace, revision
	return other.serve("pod-of-"+revision, other.identity("pod-of-"+revision))
}

// claim creates a webhook of the tag default, and returns a function that deletes it.
func (p *plane) claim(name, revision string) (remove func()) {
	p.Helper()
	hooks := p.admin.Kube().AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err := hooks.Create(p.Context(), &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{"app": "sidecar-injector", "istio.io/rev": revision, "istio.io/tag": "default"},
	}}, metav1.CreateOptions{})
	p.must(err)
	remove = sync.OnceFunc(func() {
		if err := hooks.Delete(context.WithoutCancel(p.Context()), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			p.Error(err)
		}
	})
	p.Cleanup(remove)
	return remove
}

// deployedBy waits until a revision has deployed the Gateway web of a namespace.
func (p *plane) deployedBy(namespace, revision string) {
	p.Helper()
	p.until(revision+" deploys the Gateway of "+namespace, func() bool {
		d, err := p.admin.Kube().AppsV1().Deployments(namespace).Get(p.Context(), "web-istio", metav1.GetOptions{})
		return err == nil && d.Spec.Template.Annotations["istio.io/rev"] == revision
	})
}

// conflicts returns the number of tag conflicts of a server.
func (p *plane) conflicts(r *replica) string {
	p.Helper()
	return r.Metric(p.T, "incumbent_tag_conflicts")
}

// reported returns the Events TagConflict of a webhook.
func (p *plane) reported(name string) (messages []string) {
	all, err := p.admin.Kube().CoreV1().Events("default").List(p.Context(), metav1.ListOptions{FieldSelector: "reason=TagConflict,involvedObject.name=" + name})
	p.must(err)
	for _, e := range all.Items {
		messages = append(messages, e.Message)
	}
	return messages
}

// Two webhooks give the tag default to two revisions. Both servers report the conflict once.
func TestTags_TwoDefaultTags(t *testing.T) {
	p := newPlane(t)
	stable, canary, other := p.home+"-a", p.home+"-b", "team-b-"+p.home
	p.claim(revisions.DefaultTagWebhook(""), stable)
	servers := map[string]*replica{stable: p.revision(p.home, stable), canary: p.revision(p.home, canary)}
	remove := p.claim(other, canary)
	for name, s := range servers {
		p.until(name+" reports the conflict", func() bool {
			return s.Log.Count("several revisions claim a tag", "tag=default") == 1 && p.conflicts(s) == "1"
		})
	}
	p.until("an Event reports the conflict", func() bool { return len(p.reported(other)) > 0 })
	if got := p.reported(other); len(got) != 1 || !strings.Contains(got[0], "kubectl delete mutatingwebhookconfiguration "+other) {
		t.Errorf("Events: %q", got)
	}
	remove()
	for name, s := range servers {
		p.until(name+" reports the end", func() bool {
			return s.Log.Count("only one revision claims the tag now") == 1 && p.conflicts(s) == "0"
		})
	}
}

// Elections and Gateway controllers of an installation follow the webhook that is named for its namespace. Another installation
// follows its own webhook.
func TestTags_OfNamespaces(t *testing.T) {
	p := newPlane(t)
	p.claim(revisions.DefaultTagWebhook(""), "of-istio-system")
	for range 2 {
		system := p.cluster.Namespace(t)
		east, west := system+"-east", system+"-west"
		servers := map[string]*replica{west: p.revision(system, west)}
		p.leads(servers[west], leaderelection.NamespaceController)
		servers[east] = p.revision(system, east)
		p.label(system, west)
		p.gateway(system, "web")
		p.deployedBy(system, west)
		remove := p.claim(revisions.DefaultTagWebhook(system), east)
		p.leads(servers[east], leaderelection.NamespaceController)
		home := p.cluster.Namespace(t)
		p.gateway(home, "web")
		p.deployedBy(home, east)
		remove() // unlabelled Gateways of the next installation belong to it alone
		for name, s := range servers {
			if n := p.conflicts(s); n != "0" {
				t.Errorf("%s: %s conflicts", name, n)
			}
		}
	}
}
