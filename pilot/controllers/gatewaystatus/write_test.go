package gatewaystatus

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/controllers/reconcile"
)

// entry returns an entry of the status of a route.
func entry(parent string, controller gateway.GatewayController, status metav1.ConditionStatus, at metav1.Time) gateway.RouteParentStatus {
	return gateway.RouteParentStatus{
		ParentRef: gateway.ParentReference{Name: gateway.ObjectName(parent)}, ControllerName: controller,
		Conditions: []metav1.Condition{conditionOf("Accepted", status, "R", at)},
	}
}

// steps returns the operations of a patch in short form.
func steps(t *testing.T, p *patch) (all []string) {
	t.Helper()
	if p == nil {
		return nil
	}
	if p.kind == types.MergePatchType {
		return []string{"merge " + strings.ReplaceAll(string(p.body), `"`, "")}
	}
	var ops []struct {
		Op, Path string
		Value    any
	}
	harness.Must(t, json.Unmarshal(p.body, &ops))
	for _, op := range ops {
		value := ""
		switch v := op.Value.(type) {
		case string:
			value = " " + v
		case map[string]any:
			ref, _ := v["parentRef"].(map[string]any)
			conditions, _ := v["conditions"].([]any)
			first, _ := conditions[0].(map[string]any)
			value = fmt.Sprint(" ", ref["name"], " ", first["status"], " ", first["lastTransitionTime"])
		}
		all = append(all, op.Op+" "+op.Path+value)
	}
	return all
}

func TestChangeParents(t *testing.T) {
	const ours, theirs, stamp = reconcile.GatewayController, "example.com/other", "1970-01-24T03:33:20Z"
	guard := "replace /metadata/resourceVersion 7"
	a, b := entry("a", ours, "True", metav1.Time{}), entry("b", ours, "False", metav1.Time{})
	other := func(name string) gateway.RouteParentStatus { return entry(name, theirs, "True", early) }
	many := func(n int) (all []gateway.RouteParentStatus) {
		for i := range n {
			all = append(all, other(fmt.Sprint("p", i)))
		}
		return all
	}
	explicit := entry("a", ours, "True", early)
	namespace := gateway.Namespace("infra")
	explicit.ParentRef.Namespace = &namespace
	observed := entry("a", ours, "False", early)
	observed.Conditions[0].ObservedGeneration = 6
	odd := entry("a", ours, "False", early)
	odd.Conditions = slices.Insert(odd.Conditions, 0, conditionOf("Odd", "Unknown", "R", early))
	odd.Conditions[0].ObservedGeneration = 6
	for name, test := range map[string]struct {
		have, wanted []gateway.RouteParentStatus
		want         []string
		left         int
	}{
		"empty":     {nil, nil, nil, 0},
		"no change": {[]gateway.RouteParentStatus{other("x"), entry("a", ours, "True", early)}, []gateway.RouteParentStatus{a}, nil, 0},
		"first entry": {nil, []gateway.RouteParentStatus{a}, []string{
			"merge {metadata:{resourceVersion:7,uid:},status:{parents:[{parentRef:{name:a},controllerName:istio.io/gateway-controller,conditions:[{type:Accepted,status:True,lastTransitionTime:" + stamp + ",reason:R,message:}]}]}}",
		}, 0},
		"first own entry": {[]gateway.RouteParentStatus{other("a")}, []gateway.RouteParentStatus{a, b}, []string{
			guard, "add /status/parents/- a True " + stamp, "add /status/parents/- b False " + stamp,
		}, 0},
		"changed entry": {[]gateway.RouteParentStatus{other("x"), entry("a", ours, "False", early), other("y")}, []gateway.RouteParentStatus{a}, []string{
			guard, "replace /status/parents/1 a True " + stamp,
		}, 0},
		"removed entries": {[]gateway.RouteParentStatus{entry("c", ours, "True", early), other("x"), entry("d", ours, "True", early), entry("b", ours, "True", early)}, []gateway.RouteParentStatus{b, a}, []string{
			guard, "replace /status/parents/3 b False " + stamp, "remove /status/parents/2", "remove /status/parents/0", "add /status/parents/- a True " + stamp,
		}, 0},
		"duplicate entry": {[]gateway.RouteParentStatus{entry("a", ours, "True", early), entry("a", ours, "True", early)}, []gateway.RouteParentStatus{a}, []string{
			guard, "remove /status/parents/1",
		}, 0},
		"explicit defaults": {[]gateway.RouteParentStatus{explicit}, []gateway.RouteParentStatus{entry("a", ours, "False", metav1.Time{})}, []string{
			guard, "replace /status/parents/0 a False " + stamp,
		}, 0},
		"one free entry": {many(31), []gateway.RouteParentStatus{a, b}, []string{guard, "add /status/parents/- a True " + stamp}, 1},
		"full":           {many(32), []gateway.RouteParentStatus{a, b}, nil, 2},
		"full, own entry removed": {append(many(31), entry("c", ours, "True", early)), []gateway.RouteParentStatus{a}, []string{
			guard, "remove /status/parents/31", "add /status/parents/- a True " + stamp,
		}, 0},
		"other condition of a later generation": {[]gateway.RouteParentStatus{odd}, []gateway.RouteParentStatus{a}, []string{
			guard, "replace /status/parents/0 a Unknown " + early.UTC().Format(time.RFC3339),
		}, 0},
		"later generation": {[]gateway.RouteParentStatus{observed}, []gateway.RouteParentStatus{a}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			route := &route{ObjectMeta: metav1.ObjectMeta{Name: "route", Namespace: "infra", ResourceVersion: "7", Generation: 5}}
			route.Status.Parents = test.have
			var removed []int
			for i, j := range paired(route, test.wanted) {
				if test.have[i].ControllerName == ours && j < 0 {
					removed = append(removed, i)
				}
			}
			change, left := changeParents(route, test.wanted, removed, metav1.NewTime(time.Unix(2_000_000, 0).UTC()))
			if got := steps(t, change); !slices.Equal(got, test.want) || left != test.left {
				t.Errorf("the patch is\n%q, want\n%q; %d left, want %d", got, test.want, left, test.left)
			}
		})
	}
}
