package features

import (
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

func TestMain(m *testing.M) {
	// OpenCensus, which istio.io/pkg/log brings, starts one when it is imported.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"))
}

// setenv sets these variables, and no others.
func setenv(t *testing.T, values map[string]string) {
	t.Helper()
	for _, v := range new(Features).variables() {
		t.Setenv(v.Name, values[v.Name])
	}
}

var defaults = Features{
	EnableLeaderElection: true, EnableWriteGate: true, EnableMemberLease: true, EnableGatewayAPI: true, EnableGatewayAPIStatus: true,
	EnableGatewayAPIDeploymentController: true, EnableGatewayAPIGatewayClassController: true, PodNamespace: "istio-system", ClusterID: "Kubernetes", ElectionLock: "configmap",
	LeaseDuration: 30 * time.Second, RenewDeadline: 15 * time.Second, RetryPeriod: 7500 * time.Millisecond,
}

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		want func(*Features)
	}{
		"nothing set":    {nil, func(*Features) {}},
		"elections off":  {map[string]string{"ENABLE_LEADER_ELECTION": "false"}, func(f *Features) { f.EnableLeaderElection = false }},
		"gate and fence": {map[string]string{"ENABLE_WRITE_GATE": "false", "ENABLE_WRITE_FENCE": "true"}, func(f *Features) { f.EnableWriteGate, f.EnableWriteFence = false, true }},
		"gateways": {map[string]string{"PILOT_ENABLE_GATEWAY_API": "false", "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER": "0"}, func(f *Features) {
			f.EnableGatewayAPI, f.EnableGatewayAPIDeploymentController = false, false
		}},
		"status and class": {map[string]string{"PILOT_ENABLE_GATEWAY_API_STATUS": "f", "PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": "False"}, func(f *Features) {
			f.EnableGatewayAPIStatus, f.EnableGatewayAPIGatewayClassController = false, false
		}},
		"identity":         {map[string]string{"POD_NAME": "istiod-6c-x", "POD_NAMESPACE": "system", "REVISION": "canary"}, func(f *Features) { f.PodName, f.PodNamespace, f.Revision = "istiod-6c-x", "system", "canary" }},
		"ingress":          {map[string]string{"K8S_INGRESS_NS": "istio-ingress"}, func(f *Features) { f.IngressNamespace = "istio-ingress" }},
		"member":           {map[string]string{"POD_UID": "1-2", "ENABLE_MEMBER_LEASE": "false"}, func(f *Features) { f.PodUID, f.EnableMemberLease = "1-2", false }},
		"cluster":          {map[string]string{"CLUSTER_ID": "East 1", "KUBECONFIG": "/a:/b"}, func(f *Features) { f.ClusterID, f.Kubeconfig = "East 1", "/a:/b" }},
		"lock in any case": {map[string]string{"LEADER_ELECTION_LOCK": "Lease"}, func(f *Features) { f.ElectionLock = "lease" }},
		"timing": {map[string]string{"LEADER_ELECTION_LEASE_DURATION": "6s", "LEADER_ELECTION_RENEW_DEADLINE": "4s", "LEADER_ELECTION_RETRY_PERIOD": "1s"}, func(f *Features) {
			f.LeaseDuration, f.RenewDeadline, f.RetryPeriod = 6*time.Second, 4*time.Second, time.Second
		}},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, test.env)
			got, err := FromEnv()
			harness.Must(t, err)
			want := defaults
			test.want(&want)
			if got != want {
				t.Errorf("got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestParseNamesEveryWrongVariable(t *testing.T) {
	env := map[string]string{
		"ENABLE_LEADER_ELECTION":         "maybe",
		"REVISION":                       "1.26",
		"K8S_INGRESS_NS":                 "a/b",
		"POD_NAME":                       "Pod A",
		"POD_NAMESPACE":                  strings.Repeat("n", 64),
		"LEADER_ELECTION_LOCK":           "endpoints",
		"LEADER_ELECTION_LEASE_DURATION": "30",
		"LEADER_ELECTION_RENEW_DEADLINE": "-1s",
		"LEADER_ELECTION_RETRY_PERIOD":   "0s",
	}
	setenv(t, env)
	_, err := FromEnv()
	if err == nil {
		t.Fatal("no error")
	}
	for name, value := range env {
		if want := name + `="` + value + `"`; !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s:\n%v", want, err)
		}
	}
}

func TestFromEnvReadsTheEnvironment(t *testing.T) {
	t.Setenv("REVISION", "canary")
	f, err := FromEnv()
	harness.Must(t, err)
	if f.Revision != "canary" {
		t.Errorf("revision is %q", f.Revision)
	}
	i := slices.IndexFunc(List(), func(f Flag) bool { return f.Name == "REVISION" })
	if i < 0 || List()[i].Value != "canary" || !List()[i].Set {
		t.Errorf("the list says %+v", List())
	}
}

func TestListDescribesEveryVariable(t *testing.T) {
	setenv(t, map[string]string{"ENABLE_LEADER_ELECTION": "maybe"})
	flags := List()
	if len(flags) != len(new(Features).variables()) || !slices.IsSortedFunc(flags, func(a, b Flag) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("got %+v", flags)
	}
	for _, f := range flags {
		if f.Name == "" || f.Type == "" || f.Description == "" {
			t.Errorf("%+v is not described", f)
		}
	}
	i := slices.IndexFunc(flags, func(f Flag) bool { return f.Name == "ENABLE_LEADER_ELECTION" })
	if got := flags[i]; got.Type != "boolean" || got.Default != "true" || got.Value != "maybe" {
		t.Errorf("got %+v", got)
	}
}
