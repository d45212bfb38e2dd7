package verdict

import (
	"fmt"
	"strings"
	"testing"
)

// conditions returns the conditions of a generation.
func conditions(generation int, pairs ...string) []any {
	var all []any
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, fields{"type": pairs[i], "status": pairs[i+1], "observedGeneration": generation})
	}
	return all
}

func TestJudge_DesiredState(t *testing.T) {
	generation := func(n int) fields { return fields{"generation": n} }
	gateway := func(s *script, n, seen int, programmed string, addresses ...any) {
		s.put("admin", "update", "gateways/status", "shop", "web", fields{
			"metadata": generation(n), "status": fields{"conditions": conditions(seen, "Programmed", programmed), "addresses": addresses},
		})
	}
	deployment := func(s *script, revision string) {
		s.put("admin", "update", "deployments", "shop", "web-istio", fields{"metadata": fields{
			"labels": fields{gatewayLabel: "web"},
		}, "spec": fields{"template": fields{"metadata": fields{"annotations": fields{revisionLabel: revision}}}}})
	}
	served := func(s *script) {
		gateway(s, 1, 1, "True", fields{"value": "192.0.2.1"})
		deployment(s, "stable")
	}
	ingress := func(s *script, ips ...string) {
		var all []any
		for _, ip := range ips {
			all = append(all, fields{"ip": ip})
		}
		s.put("admin", "update", "ingresses/status", "shop", "web", fields{"status": fields{"loadBalancer": fields{"ingress": all}}})
	}
	route := func(s *script, n, seen int, accepted ...string) {
		var parents []any
		for _, status := range accepted {
			parents = append(parents, fields{"conditions": conditions(seen, "Accepted", status)})
		}
		s.put("admin", "update", "httproutes/status", "shop", "web", fields{
			"metadata": generation(n), "status": fields{"parents": parents}, "spec": fields{"parentRefs": []any{fields{"name": "web"}}},
		})
	}
	for name, test := range map[string]struct {
		play func(s *script)
		want string
	}{
		"desired state":                   {func(s *script) { served(s); ingress(s, "192.0.2.9"); route(s, 2, 2, "False", "True") }, ""},
		"Ingress without address":         {func(s *script) { ingress(s) }, "ingress shop/web at the end: it has no address"},
		"Ingress with another address":    {func(s *script) { ingress(s, "192.0.2.8") }, "it has another address"},
		"route not accepted":              {func(s *script) { served(s); route(s, 1, 1, "False") }, "route shop/web at the end: it is not accepted"},
		"route of an old generation":      {func(s *script) { served(s); route(s, 2, 1, "True") }, "it is not accepted"},
		"not programmed":                  {func(s *script) { served(s); gateway(s, 1, 1, "False", fields{}) }, "gateway shop/web at the end: it is not programmed"},
		"programmed in an old generation": {func(s *script) { served(s); gateway(s, 2, 1, "True", fields{}) }, "it is not programmed"},
		"Gateway without address":         {func(s *script) { served(s); gateway(s, 1, 1, "True") }, "it has no address"},
		"not deployed":                    {func(s *script) { gateway(s, 1, 1, "True", fields{}) }, "gateway's deployment shop/web at the end: it is missing"},
		"deployed by another revision":    {func(s *script) { served(s); deployment(s, "canary") }, `it is of revision "canary"`},
		"after a flip":                    {func(s *script) { served(s); s.play("flip canary") }, `it is of revision "stable"`},
		"deleted Ingress":                 {func(s *script) { ingress(s); s.play("remove ingresses shop web") }, ""},
		"route without Gateway":           {func(s *script) { route(s, 1, 1, "False") }, ""},
		"route of a deleted Gateway": {func(s *script) {
			served(s)
			route(s, 1, 1, "False")
			s.play("remove gateways shop web")
		}, ""},
		"route before its Gateway": {func(s *script) { route(s, 1, 1); served(s) }, "it is not accepted"},
		"deleted namespace": {func(s *script) {
			s.play("space gone")
			s.put("admin", "create", "gateways", "gone", "web", fields{})
			s.put("admin", "create", "ingresses", "gone", "web", fields{})
			s.play("terminate gone; remove namespaces - gone")
		}, ""},
		"terminating namespace": {func(s *script) {
			gateway(s, 1, 1, "False")
			s.play("terminate shop")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := begun(t)
			test.play(s)
			c := config()
			c.Wanted.IngressAddress, c.Wanted.Gateways = "192.0.2.9", true
			v := s.judged(c)
			if err := v.Err(); (err == nil) != (test.want == "") || err != nil && (len(v.Violations) != 1 || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("want %q: %v", test.want, fmt.Sprint(err))
			}
		})
	}
}
