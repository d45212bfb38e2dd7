package gatewaystatus

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
)

var (
	early = metav1.NewTime(time.Unix(1_000_000, 0))
	late  = metav1.NewTime(time.Unix(2_000_000, 0))
)

func conditionOf(kind string, status metav1.ConditionStatus, reason string, at metav1.Time) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, LastTransitionTime: at}
}

func TestTimesMoveWithTheStatusAlone(t *testing.T) {
	before := []metav1.Condition{
		conditionOf("Odd", "Unknown", "Theirs", early), conditionOf("Accepted", "True", "Old", early), conditionOf("Programmed", "False", "Old", early),
	}
	wanted := []metav1.Condition{
		conditionOf("Accepted", "True", "New", metav1.Time{}), conditionOf("Programmed", "True", "New", metav1.Time{}), conditionOf("Fresh", "True", "New", metav1.Time{}),
	}
	want := []metav1.Condition{
		conditionOf("Odd", "Unknown", "Theirs", early), conditionOf("Accepted", "True", "New", early),
		conditionOf("Programmed", "True", "New", late), conditionOf("Fresh", "True", "New", late),
	}
	kept := slices.Clone(before)
	if got := timed(before, wanted, late); !slices.Equal(got, want) {
		t.Errorf("conditions are %v, want %v", got, want)
	}
	if got := only(before, wanted, late); !slices.Equal(got, want[1:]) {
		t.Errorf("alone they are %v, want %v", got, want[1:])
	}
	if !slices.Equal(before, kept) {
		t.Error("those of before were changed")
	}
}

// A condition of a later generation stays as it is, whosever it is, and keeps no other from being written.
func TestAConditionOfALaterGenerationStays(t *testing.T) {
	at := func(kind string, status metav1.ConditionStatus, generation int64, when metav1.Time) metav1.Condition {
		c := conditionOf(kind, status, "R", when)
		c.ObservedGeneration = generation
		return c
	}
	before := []metav1.Condition{at("Odd", "True", 1_000_000, early), at("Accepted", "False", 5, early), at("Programmed", "False", 6, early)}
	wanted := []metav1.Condition{at("Accepted", "True", 5, metav1.Time{}), at("Programmed", "True", 5, metav1.Time{})}
	want := []metav1.Condition{before[0], at("Accepted", "True", 5, late), before[2]}
	if got := timed(before, wanted, late); !slices.Equal(got, want) {
		t.Errorf("conditions are %v, want %v", got, want)
	}
}

// entry is an entry of a route's status.
func entry(parent string, controller gateway.GatewayController, status metav1.ConditionStatus, at metav1.Time) gateway.RouteParentStatus {
	return gateway.RouteParentStatus{
		ParentRef: gateway.ParentReference{Name: gateway.ObjectName(parent)}, ControllerName: controller,
		Conditions: []metav1.Condition{conditionOf("Accepted", status, "R", at)},
	}
}

// steps are the operations of a JSON patch, in short.
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
	if err := json.Unmarshal(p.body, &ops); err != nil {
		t.Fatal(err)
	}
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

func TestOnlyOurEntriesAreInAPatch(t *testing.T) {
	const ours, theirs, stamp = ControllerName, "example.com/other", "1970-01-24T03:33:20Z"
	guard := "replace /metadata/resourceVersion 7"
	a, b := entry("a", ours, "True", metav1.Time{}), entry("b", ours, "False", metav1.Time{})
	foreign := func(name string) gateway.RouteParentStatus { return entry(name, theirs, "True", early) }
	many := func(n int) (all []gateway.RouteParentStatus) {
		for i := range n {
			all = append(all, foreign(fmt.Sprint("p", i)))
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
		"nothing":  {nil, nil, nil, 0},
		"the same": {[]gateway.RouteParentStatus{foreign("x"), entry("a", ours, "True", early)}, []gateway.RouteParentStatus{a}, nil, 0},
		"the first of all": {nil, []gateway.RouteParentStatus{a}, []string{
			"merge {metadata:{resourceVersion:7},status:{parents:[{parentRef:{name:a},controllerName:istio.io/gateway-controller,conditions:[{type:Accepted,status:True,lastTransitionTime:" + stamp + ",reason:R,message:}]}]}}",
		}, 0},
		"the first of ours": {[]gateway.RouteParentStatus{foreign("a")}, []gateway.RouteParentStatus{a, b}, []string{
			guard, "add /status/parents/- a True " + stamp, "add /status/parents/- b False " + stamp,
		}, 0},
		"one that changes": {[]gateway.RouteParentStatus{foreign("x"), entry("a", ours, "False", early), foreign("y")}, []gateway.RouteParentStatus{a}, []string{
			guard, "replace /status/parents/1 a True " + stamp,
		}, 0},
		"some that go": {[]gateway.RouteParentStatus{entry("c", ours, "True", early), foreign("x"), entry("d", ours, "True", early), entry("b", ours, "True", early)}, []gateway.RouteParentStatus{b, a}, []string{
			guard, "replace /status/parents/3 b False " + stamp, "remove /status/parents/2", "remove /status/parents/0", "add /status/parents/- a True " + stamp,
		}, 0},
		"one that is there twice": {[]gateway.RouteParentStatus{entry("a", ours, "True", early), entry("a", ours, "True", early)}, []gateway.RouteParentStatus{a}, []string{
			guard, "remove /status/parents/1",
		}, 0},
		"a reference with its defaults": {[]gateway.RouteParentStatus{explicit}, []gateway.RouteParentStatus{entry("a", ours, "False", metav1.Time{})}, []string{
			guard, "replace /status/parents/0 a False " + stamp,
		}, 0},
		"the last room": {many(31), []gateway.RouteParentStatus{a, b}, []string{guard, "add /status/parents/- a True " + stamp}, 1},
		"no room":       {many(32), []gateway.RouteParentStatus{a, b}, nil, 2},
		"room by one that goes": {append(many(31), entry("c", ours, "True", early)), []gateway.RouteParentStatus{a}, []string{
			guard, "remove /status/parents/31", "add /status/parents/- a True " + stamp,
		}, 0},
		"a foreign condition of a later generation": {[]gateway.RouteParentStatus{odd}, []gateway.RouteParentStatus{a}, []string{
			guard, "replace /status/parents/0 a Unknown " + early.UTC().Format(time.RFC3339),
		}, 0},
		"written for a later generation": {[]gateway.RouteParentStatus{observed}, []gateway.RouteParentStatus{a}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			route := &gateway.HTTPRoute{ObjectMeta: metav1.ObjectMeta{Name: "route", Namespace: "infra", ResourceVersion: "7", Generation: 5}}
			route.Status.Parents = test.have
			change, left := changeParents(route, test.wanted, metav1.NewTime(time.Unix(2_000_000, 0).UTC()))
			if got := steps(t, change); !slices.Equal(got, test.want) || left != test.left {
				t.Errorf("the patch is\n%q, want\n%q; %d are left out, want %d", got, test.want, left, test.left)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	if _, err := New(nil, Config{Workers: -1}); err == nil || !strings.Contains(err.Error(), "watcher of tags") || !strings.Contains(err.Error(), "-1 workers") {
		t.Errorf("error is %v", err)
	}
	if got := (Config{}).withDefaults(); got.Logger == nil {
		t.Errorf("defaults are %+v", got)
	}
	if given := slog.New(slog.DiscardHandler); (Config{Logger: given}).withDefaults().Logger != given {
		t.Error("a logger that is given is not used")
	}
}

func TestAFullStatusIsAProblem(t *testing.T) {
	if p := full(0); p != nil {
		t.Errorf("with room for all there is the problem %v", p)
	}
	want := "StatusFull: status.parents has room for 32 entries and is full of other controllers': some of istio.io/gateway-controller are left out"
	if p := full(1); p == nil || p.Error() != want {
		t.Errorf("it is %v, want %s", p, want)
	}
}

// The rights are those that the integration tests' controllers have, and no more: each is one too few for them.
func TestRights(t *testing.T) {
	var got []string
	for _, rule := range ClusterRules(true) {
		got = append(got, fmt.Sprint(rule.APIGroups, rule.Resources, rule.Verbs))
	}
	want := []string{
		"[gateway.networking.k8s.io] [gatewayclasses gateways httproutes referencegrants] [list watch]",
		"[gateway.networking.k8s.io] [gatewayclasses/status gateways/status httproutes/status] [patch]",
		"[] [namespaces secrets services] [list watch]", "[apps] [deployments] [list watch]", "[] [events] [create patch]",
		"[gateway.networking.k8s.io] [gatewayclasses] [create]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rights are\n%q, want\n%q", got, want)
	}
	if n := len(ClusterRules(false)); n != len(want)-1 {
		t.Errorf("without the class there are %d", n)
	}
}

func TestWhatIsReferredTo(t *testing.T) {
	g := aGateway(t, plain, fmt.Sprintf(secure, "b, namespace: web}, {name: a"), `{name: c, port: 1, protocol: HTTPS, tls: {certificateRefs: [{name: a}]}}`)
	if got := certificateNames(g); !slices.Equal(got, []string{"infra/a", "web/b"}) {
		t.Errorf("certificates are %q", got)
	}
	route := aRoute(t, "web", "{parentRefs: [{name: b}, {name: a, namespace: infra}, {name: b, port: 1}, {kind: Service, group: '', name: x}], rules: [{backendRefs: [{name: z, namespace: infra}, {name: x}, {name: x}]}]}")
	if got := parentNames(route); !slices.Equal(got, []string{"infra/a", "web/b"}) {
		t.Errorf("parents are %q", got)
	}
	if got := backendNames(route); !slices.Equal(got, []string{"infra/z", "web/x"}) {
		t.Errorf("backends are %q", got)
	}
}
