package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/pilot/controllers/gatewaydeploy"
)

// Without the Gateway API its two rows wait, and say so once each; with it they begin; when it is removed while they lead they say
// so once for each kind, make nothing for Gateways that are gone, and lead on; when it is back they work again. The others
// never notice.
func TestDefinitionsComeAndGo(t *testing.T) {
	p := newPlane(t)
	p.removeDefinitions()
	r := p.serve("a", p.identity("a"))
	const waits, gone = "waiting for missing CustomResourceDefinitions", "resource kind is not served by the API server; waiting for its CustomResourceDefinition"
	p.until("both rows wait", func() bool { return r.log.Count(waits) == 2 })
	p.othersGoOn()
	if n := len(r.leads(p)); n != 1 {
		t.Errorf("it leads %q", r.leads(p))
	}
	p.must(p.cluster.LoadGatewayAPI(t.Context()))
	p.gateway(p.home, "first")
	p.served(p.home, "first")
	if n := r.log.Count(waits); n != 2 {
		t.Errorf("that they wait is said %d times", n)
	}

	p.removeDefinitions()
	p.until("each kind of each row is missed", func() bool { return r.log.Count(gone) == 6 })
	made := r.sent.count("POST", "/deployments")
	// The garbage collector takes it away if it has known of the kind, and no sooner than it likes.
	if err := p.admin.Kube().AppsV1().Deployments(p.home).Delete(t.Context(), "first-istio", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	p.othersGoOn()
	if all := r.leads(p); len(all) != 3 {
		t.Errorf("it leads %q", all)
	}
	if n := r.sent.count("POST", "/deployments") - made; n > 0 || p.deployed(p.home, "first") {
		t.Errorf("%d Deployments are made for Gateways that are gone", n)
	}
	if n := r.log.Count(gone); n != 6 {
		t.Errorf("that kinds are missed is said %d times", n)
	}

	p.must(p.cluster.LoadGatewayAPI(t.Context()))
	p.gateway(p.home, "second")
	p.served(p.home, "second")
	if n := r.log.Count("run function started"); n != 3 {
		t.Errorf("%d terms began, of 3 rows", n)
	}
}

// Definitions of an earlier release of the Gateway API serve no v1, or not of every kind: what is missing, in which versions it is there
// instead, and what to do is said in one line, the others go on, and newer definitions let the rows begin.
func TestOlderDefinitions(t *testing.T) {
	p := newPlane(t)
	p.must(p.cluster.LoadGatewayAPI(t.Context()))
	defer p.serveV1(true, gatewayKinds...)
	p.serveV1(false, gatewayKinds...)
	r := p.serve("a", p.identity("a"))
	const waits, older = "waiting for missing CustomResourceDefinitions", " (only v1beta1 is served: install a newer definition)"
	missing := func(kinds ...string) string {
		var all []string
		for _, kind := range kinds {
			all = append(all, kind+".gateway.networking.k8s.io/v1"+older)
		}
		return "missing=\"[" + strings.Join(all, " ") + "]\""
	}
	p.until("both rows wait", func() bool { return r.log.Count(waits) == 2 })
	if r.log.Count(waits, missing(gatewayKinds...)) != 1 || r.log.Count(waits, missing("gatewayclasses", "gateways")) != 1 {
		t.Error("the lines do not say what is missing, and what is there in its place")
	}
	p.othersGoOn()
	// As releases before 1.5 have it: that is enough for the deployment, and not for the status.
	p.serveV1(true, "gatewayclasses", "gateways", "httproutes")
	p.gateway(p.home, "first")
	p.until("Gateway first is deployed", func() bool { return p.deployed(p.home, "first") })
	if p.accepted(p.home, "first") {
		t.Error("the status is written without all of its kinds")
	}
	p.serveV1(true, "referencegrants")
	p.served(p.home, "first")
	if n := r.log.Count(waits); n != 2 {
		t.Errorf("that they wait is said %d times", n)
	}
}

// serveV1 has definitions serve v1, or v1beta1 alone.
func (p *plane) serveV1(served bool, kinds ...string) {
	p.Helper()
	for _, kind := range kinds {
		patch := fmt.Sprintf(`[{"op":"test","path":"/spec/versions/0/name","value":"v1"},{"op":"replace","path":"/spec/versions/0/served","value":%t}]`, served)
		_, err := p.admin.Dynamic().Resource(definitions).Patch(p.Context(), kind+"."+gateway.GroupName, types.JSONPatchType, []byte(patch), metav1.PatchOptions{})
		p.must(err)
	}
	p.until("the API server serves what it is to", func() bool {
		list, err := p.admin.Kube().Discovery().ServerResourcesForGroupVersion(gateway.GroupName + "/v1")
		if err != nil && !apierrors.IsNotFound(err) {
			p.Fatal(err)
		}
		there := map[string]bool{}
		if err == nil {
			for _, r := range list.APIResources {
				there[r.Name] = true
			}
		}
		return !slices.ContainsFunc(kinds, func(kind string) bool { return there[kind] != served })
	})
}

// A right that is taken away while they lead stops what needs it: the Gateway gets an Event, the tries come with growing
// pauses, and all other rows go on. With the right back, what was missed is made up for.
func TestARightIsTakenAway(t *testing.T) {
	p := newPlane(t)
	p.must(p.cluster.LoadGatewayAPI(t.Context()))
	r := p.serve("a", p.identity("a"))
	p.gateway(p.home, "first")
	p.served(p.home, "first")
	giveBack := p.take(func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "deployments") && slices.Contains(rule.Verbs, "create")
	})
	p.gateway(p.home, "second")
	p.until("the status is written", func() bool { return p.accepted(p.home, "second") })
	p.until("there is an Event", func() bool {
		all, err := p.admin.Kube().CoreV1().Events(p.home).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=second"})
		p.must(err)
		for _, e := range all.Items {
			if e.Reason == gatewaydeploy.ReasonWriteFailed && strings.Contains(e.Message, "deployments") {
				return true
			}
		}
		return false
	})
	before, tries := time.Now(), r.sent.count("POST", "/deployments")
	p.othersGoOn()
	// Each pause is twice as long as the one before, from a tenth of a second on.
	most := 2
	for pause := 100 * time.Millisecond; pause < time.Since(before); pause *= 2 {
		most++
	}
	if n := r.sent.count("POST", "/deployments") - tries; n > most {
		t.Errorf("%d tries in %v, no more than %d were due", n, time.Since(before), most)
	}
	if all := r.leads(p); len(all) != 3 || p.deployed(p.home, "second") {
		t.Errorf("it leads %q", all)
	}
	giveBack()
	p.served(p.home, "second")
}

// take takes rights from the servers' account, everywhere.
func (p *plane) take(which func(rbacv1.PolicyRule) bool) (giveBack func()) {
	p.Helper()
	role, err := p.admin.Kube().RbacV1().ClusterRoles().Get(p.Context(), p.home+":pilot-"+p.home, metav1.GetOptions{})
	p.must(err)
	whole := role.Rules
	update := func(rules []rbacv1.PolicyRule) {
		p.Helper()
		role.Rules = rules
		role, err = p.admin.Kube().RbacV1().ClusterRoles().Update(p.Context(), role, metav1.UpdateOptions{})
		p.must(err)
	}
	update(slices.DeleteFunc(slices.Clone(whole), which))
	return func() { update(whole) }
}

// Until a server knows the tags, its rows that go by them take no part, and the others do: it says which right is missing.
func TestTagsThatCannotBeRead(t *testing.T) {
	p := newPlane(t)
	p.must(p.cluster.LoadGatewayAPI(t.Context()))
	as := p.identity("a")
	giveBack := p.take(func(rule rbacv1.PolicyRule) bool {
		return slices.Contains(rule.Resources, "mutatingwebhookconfigurations") && len(rule.ResourceNames) == 0
	})
	p.until("the right is gone", func() bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + p.home + ":pilot-" + p.home,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: "list", Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations",
			},
		}}
		answer, err := p.admin.Kube().AuthorizationV1().SubjectAccessReviews().Create(t.Context(), review, metav1.CreateOptions{})
		p.must(err)
		return !answer.Status.Allowed
	})
	r := p.serve("a", as)
	p.gateway(p.home, "first")
	p.until("the right is missed", func() bool {
		return r.log.Count("permission is missing", "verb=list", "instead=\"the tags stay as last read\"") == 1
	})
	p.othersGoOn()
	if all := r.leads(p); len(all) != 1 || p.accepted(p.home, "first") || p.deployed(p.home, "first") {
		t.Errorf("it leads %q", all)
	}
	giveBack()
	p.served(p.home, "first")
}

// A Gateway belongs to the revision of its namespace, unless it names one, for its status and for what is deployed for it;
// a tag that comes to the revision brings its Gateways with it.
func TestWhoseGateways(t *testing.T) {
	p := newPlane(t)
	p.must(p.cluster.LoadGatewayAPI(t.Context()))
	r := p.serve("a", p.identity("a"))
	tagged, tag := p.cluster.Namespace(t), "tag-of-"+p.home
	p.label(tagged, tag)
	p.gateway(tagged, "later")
	p.gateway(p.home, "now")
	p.served(p.home, "now")
	if p.accepted(tagged, "later") || p.deployed(tagged, "later") {
		t.Error("another revision's Gateway is served")
	}
	p.tag(tag)
	p.served(tagged, "later")
	moved := p.cluster.Namespace(t)
	p.gateway(moved, "moved")
	p.label(moved, p.home)
	p.served(moved, "moved")
	if n := r.log.Count("run function started"); n != 3 {
		t.Errorf("%d terms began, of 3 rows", n)
	}
}
