package istiod

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// kinds are the kinds of objects whose status is compared, with their API version.
var kinds = map[string]string{"Gateway": "v1", "HTTPRoute": "v1", "GRPCRoute": "v1", "TLSRoute": "v1", "TCPRoute": "v1", "UDPRoute": "v1"}

// surroundings are the objects that the cases refer to.
const surroundings = `
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s-gateways, labels: {istio.io/rev: %[1]s, cases: gateways}}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: %[1]s-gateways}
spec: {selector: {app: app}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: selectorless, namespace: %[1]s-gateways}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: external, namespace: %[1]s-gateways}
spec: {type: ExternalName, externalName: example.com}
---
apiVersion: v1
kind: Secret
metadata: {name: cert, namespace: %[1]s-gateways}
type: kubernetes.io/tls
data: {tls.crt: %[2]s, tls.key: %[3]s}
---
apiVersion: v1
kind: Secret
metadata: {name: opaque, namespace: %[1]s-gateways}
data: {tls.crt: %[2]s, tls.key: %[3]s}
---
apiVersion: v1
kind: Secret
metadata: {name: broken, namespace: %[1]s-gateways}
type: kubernetes.io/tls
data: {tls.crt: aGVsbG8=, tls.key: aGVsbG8=}
`

// elsewhere is a namespace of neither revision.
const elsewhere = `
apiVersion: v1
kind: Namespace
metadata: {name: other-gateways}
---
apiVersion: v1
kind: Service
metadata: {name: app, namespace: other-gateways}
spec: {selector: {app: app}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: granted, namespace: other-gateways}
spec: {selector: {app: app}, ports: [{port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: ReferenceGrant
metadata: {name: granted, namespace: other-gateways}
spec:
  from: [{group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: stable-gateways}, {group: gateway.networking.k8s.io, kind: HTTPRoute, namespace: canary-gateways}]
  to: [{group: "", kind: Service, name: granted}]
`

// readCases returns the manifests of testdata/gateways.txt, and the names of the cases by prefix.
func readCases(t *testing.T) (manifests string, names map[string]string) {
	t.Helper()
	content, err := os.ReadFile("testdata/gateways.txt")
	harness.Must(t, err)
	names = map[string]string{}
	var text strings.Builder
	prefix := ""
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if name, is := strings.CutPrefix(line, "= "); is {
			prefix = fmt.Sprintf("c%02d", len(names)+1)
			names[prefix] = name
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		words := strings.SplitN(strings.ReplaceAll(line, "@", prefix+"-"), " ", 3)
		if len(words) != 3 || kinds[words[0]] == "" {
			t.Fatalf("testdata/gateways.txt: %q is not KIND NAME SPEC", line)
		}
		fmt.Fprintf(&text, "---\n{apiVersion: gateway.networking.k8s.io/%s, kind: %s, metadata: {name: %s}, spec: %s}\n", kinds[words[0]], words[0], words[1], words[2])
	}
	return text.String(), names
}

// The status of Gateways and routes of a revision of incumbent and of a revision of istiod, for the same objects. The differences
// are listed in testdata/differences.txt.
func TestGatewayStatus(t *testing.T) {
	l := start(t, map[string]string{"istiod": program(t, "ISTIOD")}, nil)
	r := &report{lab: l}
	r.incumbent(1)
	harness.Must(r.t, r.Flip(t.Context(), stable))
	l.install(canary, "istiod", 1)
	r.awaitLeads(stable)
	cert, key := certs.KeyPair(t)
	l.kubectl(elsewhere, "apply", "-f", "-")
	manifests, names := readCases(t)
	for _, revision := range []string{stable, canary} {
		l.kubectl(fmt.Sprintf(surroundings, revision, base64.StdEncoding.EncodeToString(cert), base64.StdEncoding.EncodeToString(key)), "apply", "-f", "-")
		l.kubectl(manifests, "apply", "-n", revision+"-gateways", "-f", "-")
	}
	ours, istiods := l.settled(stable), l.settled(canary)
	found := map[string]string{} // by case and object
	for _, object := range slices.Sorted(maps.Keys(ours)) {
		if differences := compare(ours[object], istiods[object]); differences != "" {
			prefix, name, _ := strings.Cut(object[strings.Index(object, " ")+1:], "-")
			found[fmt.Sprintf("%s: %s %s", names[prefix], object[:strings.Index(object, " ")], name)] = differences
		}
	}
	t.Logf("%d cases, %d objects, %d with a difference", len(names), len(ours), len(found))
	checkDifferences(t, found)
}

// settled returns the statuses of the objects of a revision, when they have not changed for a while.
func (l *lab) settled(revision string) map[string]map[string]string {
	l.t.Helper()
	var last map[string]map[string]string
	since := time.Now()
	l.await("the statuses of "+revision+" do not change", func() string {
		now := l.statuses(revision)
		if !maps.EqualFunc(now, last, maps.Equal[map[string]string]) {
			last, since = now, time.Now()
		}
		const quiet = 6 * time.Second
		if time.Since(since) < quiet {
			return "they change"
		}
		return ""
	})
	return last
}

type object struct {
	Kind     string
	Metadata struct{ Name string }
	Status   struct {
		Conditions []condition
		Listeners  []struct {
			Name           string
			AttachedRoutes int
			SupportedKinds []struct{ Kind string }
			Conditions     []condition
		}
		Parents []struct {
			ParentRef  map[string]any
			Conditions []condition
		}
	}
}

type condition struct{ Type, Status, Reason string }

// statuses returns the fields of the status by object ("Kind name") and field.
func (l *lab) statuses(revision string) map[string]map[string]string {
	l.t.Helper()
	var list struct{ Items []object }
	all := "gateways,httproutes,grpcroutes,tlsroutes,tcproutes,udproutes"
	resources := strings.ReplaceAll(all, ",", ".gateway.networking.k8s.io,") + ".gateway.networking.k8s.io"
	harness.Must(l.t, json.Unmarshal([]byte(l.kubectl("", "get", resources, "-n", revision+"-gateways", "-o", "json")), &list))
	statuses := map[string]map[string]string{}
	for _, o := range list.Items {
		fields := map[string]string{}
		add := func(where string, conditions []condition) {
			for _, c := range conditions {
				fields[where+c.Type] = c.Status + "/" + c.Reason
			}
		}
		// Programmed depends on Pods, and istiod deploys none without its chart. ResolvedRefs of a Gateway is about client
		// certificates, which no case has.
		add("", slices.DeleteFunc(o.Status.Conditions, func(c condition) bool {
			return c.Type == "Programmed" || c.Type == "ResolvedRefs" && o.Kind == "Gateway"
		}))
		for _, s := range o.Status.Listeners {
			where := "listener " + s.Name + " "
			add(where, s.Conditions)
			fields[where+"attachedRoutes"] = fmt.Sprint(s.AttachedRoutes)
			var supported []string
			for _, k := range s.SupportedKinds {
				supported = append(supported, k.Kind)
			}
			slices.Sort(supported)
			fields[where+"supportedKinds"] = strings.Join(supported, "+")
		}
		for _, p := range o.Status.Parents {
			where := fmt.Sprintf("parent %v ", p.ParentRef["name"])
			for _, key := range []string{"sectionName", "port"} {
				if value := p.ParentRef[key]; value != nil {
					where += fmt.Sprintf("%v ", value)
				}
			}
			fields[where+"entry"] = "present"
			add(where, p.Conditions)
		}
		statuses[o.Kind+" "+o.Metadata.Name] = fields
	}
	return statuses
}

// compare returns the different fields. If a listener is rejected, istiod writes no ResolvedRefs, or leaves the condition from
// before the conflict, depending on the order of its events.
func compare(ours, istiods map[string]string) string {
	all := maps.Clone(ours)
	maps.Copy(all, istiods)
	var differences []string
	for _, field := range slices.Sorted(maps.Keys(all)) {
		if optional := strings.HasPrefix(field, "listener ") && strings.HasSuffix(field, " ResolvedRefs") && istiods[field] == ""; ours[field] != istiods[field] && !optional {
			differences = append(differences, fmt.Sprintf("%s: %s, istiod %s", field, cmp.Or(ours[field], "none"), cmp.Or(istiods[field], "none")))
		}
	}
	return strings.Join(differences, "; ")
}

// checkDifferences compares the differences with testdata/differences.txt: lines "CASE: KIND NAME | DIFFERENCES | REASON". The flag
// -rewrite keeps the reasons.
func checkDifferences(t *testing.T, found map[string]string) {
	t.Helper()
	const path = "testdata/differences.txt"
	content, err := os.ReadFile(path)
	harness.Must(t, err)
	reasons := map[string]string{}
	for line := range strings.Lines(string(content)) {
		if parts := strings.Split(strings.TrimSpace(line), " | "); len(parts) == 3 {
			reasons[parts[0]] = parts[2]
		}
	}
	text := "# Differences between incumbent and istiod that TestGatewayStatus expects: OBJECT | FIELDS | REASON.\n"
	for _, name := range slices.Sorted(maps.Keys(found)) {
		reason := cmp.Or(reasons[name], "none")
		if reason == "none" {
			t.Errorf("%s: no reason", name)
		}
		text += fmt.Sprintf("%s | %s | %s\n", name, found[name], reason)
	}
	golden.File(t, path, text)
}
