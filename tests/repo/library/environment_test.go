package library

import (
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pkg/features"
	"incumbent.dev/incumbent/pkg/kube"
)

// variables of an election, and what the constructors take where they are not set.
var variables = map[string]string{
	"ENABLE_LEADER_ELECTION":         "true",
	"LEADER_ELECTION_LEASE_DURATION": leaderelection.DefaultLeaseDuration.String(),
	"LEADER_ELECTION_RENEW_DEADLINE": leaderelection.DefaultRenewDeadline.String(),
	"LEADER_ELECTION_RETRY_PERIOD":   leaderelection.DefaultRetryPeriod.String(),
}

// istioStyle are all constructors with istiod's signatures.
func istioStyle(name string, client kube.Client) map[string]*leaderelection.LeaderElection {
	const namespace, id, revision = "istio-system", "an-election", "stable"
	return map[string]*leaderelection.LeaderElection{
		"ConfigMap":    leaderelection.NewLeaderElection(namespace, name, id, revision, client),
		"Lease":        leaderelection.NewLeaseLeaderElection(namespace, name, id, revision, client),
		"per revision": leaderelection.NewPerRevisionLeaderElection(namespace, name, id, revision, client),
		"multicluster": leaderelection.NewLeaderElectionMulticluster(namespace, name, id, revision, false, client),
	}
}

// pkg/features registers what the constructors read, under the same names and with the same
// defaults.
func TestConstructorsReadWhatFeaturesRegister(t *testing.T) {
	registered := map[string]features.Flag{}
	for _, flag := range features.List() {
		registered[flag.Name] = flag
	}
	for name, value := range variables {
		if got := registered[name].Default; got != value {
			t.Errorf("%s is registered with the default %q, and the constructors take %q", name, got, value)
		}
	}
}

func TestConstructorsReportWrongVariables(t *testing.T) {
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for variable := range variables {
		for value, wants := range map[string]string{"maybe": "give ", "-1s": "give ", "1500ms": ""} {
			if value == "1500ms" && variable == "ENABLE_LEADER_ELECTION" {
				continue
			}
			t.Run(variable+"="+value, func(t *testing.T) {
				t.Setenv(variable, value)
				wants := []string{wants, "an-election"}
				switch {
				case wants[0] != "":
					wants = append(wants, variable+`="`+value+`"`)
				case variable == "LEADER_ELECTION_RETRY_PERIOD":
					return // a good one
				default:
					wants = append(wants, "1.5s") // read, and judged by the election
				}
				for which, l := range istioStyle("a", client) {
					err := l.RunContext(t.Context())
					for _, want := range wants {
						if err == nil || !strings.Contains(err.Error(), want) {
							t.Errorf("%s: error is %v, want one with %q", which, err, want)
						}
					}
				}
			})
		}
	}
}

// With elections off, run functions run at once, and Run blocks until its stop, with the
// process as leader, also when they have returned.
func TestDisabledElectionsLeadUntilTheStop(t *testing.T) {
	t.Setenv("ENABLE_LEADER_ELECTION", "false")
	client, err := kube.NewClient(&rest.Config{Host: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	for which, l := range istioStyle("a", client) {
		t.Run(which, func(t *testing.T) {
			ran, returned := make(chan struct{}), make(chan struct{})
			l.AddRunFunction(func(<-chan struct{}) { close(ran) })
			stop := make(chan struct{})
			go func() {
				defer close(returned)
				l.Run(stop)
			}()
			<-ran
			select {
			case <-returned:
				t.Fatal("Run has returned before its stop")
			case <-time.After(100 * time.Millisecond): // what is wrong shows within microseconds
			}
			if !l.IsLeader() {
				t.Error("not the leader")
			}
			close(stop)
			select {
			case <-returned:
			case <-time.After(patience):
				t.Fatal("Run does not return")
			}
			if l.IsLeader() {
				t.Error("still the leader after Run")
			}
		})
	}
}
