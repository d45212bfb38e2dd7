package verdict

import (
	"fmt"
	"strings"
	"testing"
)

func TestJudge_DesiredState(t *testing.T) {
	conditions := func(name, status string, seen int) string {
		return fmt.Sprintf(`"conditions":[{"type":%q,"status":%q,"observedGeneration":%d}]`, name, status, seen)
	}
	gateway := func(generation, seen int, programmed, addresses string) string {
		return fmt.Sprintf(`put gateways/status shop web {"metadata":{"generation":%d},"status":{%s,"addresses":[%s]}}; `,
			generation, conditions("Programmed", programmed, seen), addresses)
	}
	deployment := func(revision string) string {
		return fmt.Sprintf(`put deployments shop web-istio {"metadata":{"labels":{%q:"web"}},"spec":{"template":{"metadata":{"annotations":{%q:%q}}}}}; `,
			gatewayLabel, revisionLabel, revision)
	}
	ingress := func(ips string) string {
		return fmt.Sprintf(`put ingresses/status shop web {"status":{"loadBalancer":{"ingress":[%s]}}}; `, ips)
	}
	route := func(generation, seen int, accepted ...string) string {
		var parents []string
		for _, status := range accepted {
			parents = append(parents, "{"+conditions("Accepted", status, seen)+"}")
		}
		return fmt.Sprintf(`put httproutes/status shop web {"metadata":{"generation":%d},"status":{"parents":[%s]},"spec":{"parentRefs":[{"name":"web"}]}}; `,
			generation, strings.Join(parents, ","))
	}
	served := gateway(1, 1, "True", `{"value":"192.0.2.1"}`) + deployment("stable")
	for name, test := range map[string]struct{ play, want string }{
		"desired state":                   {served + ingress(`{"ip":"192.0.2.9"}`) + route(2, 2, "False", "True"), ""},
		"Ingress without address":         {ingress(""), "ingress shop/web at the end: it has no address"},
		"Ingress with another address":    {ingress(`{"ip":"192.0.2.8"}`), "it has another address"},
		"route not accepted":              {served + route(1, 1, "False"), "route shop/web at the end: it is not accepted"},
		"route of an old generation":      {served + route(2, 1, "True"), "it is not accepted"},
		"not programmed":                  {served + gateway(1, 1, "False", "{}"), "gateway shop/web at the end: it is not programmed"},
		"programmed in an old generation": {served + gateway(2, 1, "True", "{}"), "it is not programmed"},
		"Gateway without address":         {served + gateway(1, 1, "True", ""), "it has no address"},
		"not deployed":                    {gateway(1, 1, "True", "{}"), "gateway's deployment shop/web at the end: it is missing"},
		"deployed by another revision":    {served + deployment("canary"), `it is of revision "canary"`},
		"after a flip":                    {served + "flip canary", `it is of revision "stable"`},
		"deleted Ingress":                 {ingress("") + "remove ingresses shop web", ""},
		"route without Gateway":           {route(1, 1, "False"), ""},
		"route of a deleted Gateway":      {served + route(1, 1, "False") + "remove gateways shop web", ""},
		"route before its Gateway":        {route(1, 1) + served, "it is not accepted"},
		"deleted namespace":               {"space gone; put gateways gone web {}; put ingresses gone web {}; terminate gone; remove namespaces - gone", ""},
		"terminating namespace":           {gateway(1, 1, "False", "") + "terminate shop", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			s.Play(test.play)
			c := config()
			c.Wanted.IngressAddress = "192.0.2.9"
			c.Wanted.Gateways = true
			v := judged(t, s, c)
			if err := v.Err(); (err == nil) != (test.want == "") || err != nil && (len(v.Violations) != 1 || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("want %q: %v", test.want, fmt.Sprint(err))
			}
		})
	}
}
