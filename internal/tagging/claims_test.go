package tagging

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// claimed parses "tag=revision kind name age" claims: kind is S or W, a larger age is older.
func claimed(t *testing.T, lines ...string) (claims []Claim) {
	t.Helper()
	for _, line := range lines {
		var kind, name, what string
		var age int
		if _, err := fmt.Sscan(line, &what, &kind, &name, &age); err != nil {
			t.Fatal(err)
		}
		tag, revision, _ := strings.Cut(what, "=")
		claims = append(claims, Claim{
			Tag: tag, Revision: revision, Name: name, Kind: map[string]string{"S": ServiceKind, "W": WebhookKind}[kind],
			Created: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(-time.Duration(age) * time.Hour),
		})
	}
	return claims
}

func TestResolve(t *testing.T) {
	const standard = "istio-revision-tag-default"
	for name, test := range map[string]struct {
		namespace string
		claims    []string
		// want has "tag=revision" for each tag, and the names of the claims that conflict with it.
		want string
	}{
		"none":                        {want: ""},
		"one revision, two webhooks":  {claims: []string{"prod=a W x 1", "prod=a W y 2"}, want: "prod=a"},
		"oldest webhook":              {claims: []string{"prod=a W x 1", "prod=b W y 2"}, want: "prod=b !x"},
		"same age, name":              {claims: []string{"prod=a W y 1", "prod=b W x 1"}, want: "prod=b !y"},
		"Service before older":        {claims: []string{"prod=a W x 9", "prod=b S y 1"}, want: "prod=b !x"},
		"two Services":                {claims: []string{"prod=a S x 1", "prod=b S y 2", "prod=a W z 3"}, want: "prod=b !x !z"},
		"three revisions":             {claims: []string{"prod=a W x 1", "prod=b W y 2", "prod=c W z 3"}, want: "prod=c !y !x"},
		"several tags":                {claims: []string{"prod=a W x 1", "test=b W y 1", "test=a W z 2"}, want: "prod=a test=a !y"},
		"default: read by elections":  {claims: []string{"default=a W older 9", "default=b W " + standard + " 1"}, want: "default=b !older"},
		"default: Service":            {claims: []string{"default=a S s 1", "default=b W " + standard + " 9"}, want: "default=b !s"},
		"default: only other names":   {claims: []string{"default=a W x 1", "default=b W y 2"}, want: "default=b !x"},
		"own namespace, no conflict":  {namespace: "mesh", claims: []string{"default=a W " + standard + " 9", "default=b W " + standard + "-mesh 1"}, want: "default=b"},
		"own namespace, another tag":  {namespace: "mesh", claims: []string{"prod=a W istio-revision-tag-prod 9", "prod=b W istio-revision-tag-prod-mesh 1"}, want: "prod=b"},
		"own namespace, and a copy":   {namespace: "mesh", claims: []string{"default=a W copy 9", "default=b W " + standard + "-mesh 1"}, want: "default=b !copy"},
		"no webhook of the namespace": {namespace: "mesh", claims: []string{"default=a W " + standard + " 1", "default=b W copy 9"}, want: "default=a !copy"},
	} {
		t.Run(name, func(t *testing.T) {
			claims := claimed(t, test.claims...)
			for range len(claims) + 1 { // the order of the claims has no effect
				used, conflicts := Resolve(test.namespace, claims)
				var got []string
				for _, tag := range slices.Sorted(maps.Keys(used)) {
					got = append(got, tag+"="+used[tag].Revision)
					for _, c := range conflicts {
						for _, other := range c.Others {
							if c.Used.Tag == tag {
								got = append(got, "!"+other.Name)
							}
						}
					}
				}
				if got := strings.Join(got, " "); got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
				if len(claims) > 0 {
					claims = append(claims[1:], claims[0])
				}
			}
		})
	}
}

func TestWebhookClaim(t *testing.T) {
	for name, test := range map[string]struct {
		hook admissionv1.MutatingWebhookConfiguration
		want string
	}{
		"without calls":               {tagHook("any", "prod", "a"), "istio-system mesh"},
		"standard name":               {tagHook("istio-revision-tag-prod", "prod", "a"), "istio-system mesh"},
		"named for a namespace":       {tagHook("istio-revision-tag-prod-mesh", "prod", "a"), "mesh"},
		"a tag with a dash":           {tagHook("istio-revision-tag-prod-mesh", "prod-mesh", "a"), "istio-system mesh"},
		"calls a Service":             {tagHook("any", "prod", "a", "mesh"), "mesh"},
		"calls Services of both":      {tagHook("any", "prod", "a", "mesh", "istio-system"), "istio-system mesh"},
		"calls and is named":          {tagHook("istio-revision-tag-prod-mesh", "prod", "a", "istio-system"), "istio-system"},
		"by a URL":                    {tagHook("any", "prod", "a", ""), "istio-system mesh"},
		"without a tag":               {tagHook("any", "", "a"), ""},
		"the revision without name":   {tagHook("any", "prod", ""), "istio-system mesh"},
		"without label of a revision": {admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{TagLabel: "prod"}}}, ""},
	} {
		var got []string
		for _, namespace := range []string{"istio-system", "mesh"} {
			if _, ok := WebhookClaim(&test.hook, namespace); ok {
				got = append(got, namespace)
			}
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("%s: claim in %q, want %q", name, got, test.want)
		}
	}
	for _, test := range []struct {
		claim Claim
		want  string
	}{
		{Claim{Kind: WebhookKind, Name: "x"}, "kubectl label mutatingwebhookconfiguration x istio.io/tag-"},
		{Claim{Kind: ServiceKind, Name: "x", Namespace: "mesh"}, "kubectl --namespace mesh label service x istio.io/tag-"},
	} {
		if got := test.claim.EndCommand(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
	conflict := Conflict{Used: Claim{Tag: "prod", Revision: "a", Kind: WebhookKind, Name: "x"}, Others: []Claim{{Tag: "prod", Revision: "b", Kind: ServiceKind, Name: "y"}}}
	if got := conflict.String(); got != "tag prod is claimed by several revisions: revision a (MutatingWebhookConfiguration x) counts, b (Service y) does not" {
		t.Error(got)
	}
}

func tagHook(name, tag, revision string, namespaces ...string) admissionv1.MutatingWebhookConfiguration {
	item := admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{TagLabel: tag, Label: revision}}}
	for _, namespace := range namespaces {
		hook := admissionv1.MutatingWebhook{ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: namespace}}}
		if namespace == "" { // by a URL
			hook.ClientConfig.Service = nil
		}
		item.Webhooks = append(item.Webhooks, hook)
	}
	return item
}
