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

// variables has the variables of an election and their defaults in the constructors.
var variables = map[string]string{
	"ENABLE_LEADER_ELECTION":         "true",
	"LEADER_ELECTION_LEASE_DURATION": leaderelection.DefaultLeaseDuration.String(),
	"LEADER_ELECTION_RENEW_DEADLINE": leaderelection.DefaultRenewDeadline.String(),
	"LEADER_ELECTION_RETRY_PERIOD":   leaderelection.DefaultRetryPeriod.String(),
}

// istioStyle returns an election of each constructor with istiod's signature.
func istioStyle(name string, client kube.Client) map[string]*leaderelection.LeaderElection {
	const namespace, id, revision = "istio-system", "an-election", "stable"
	return map[string]*leaderelection.LeaderElection{
		"ConfigMap":    leaderelection.NewLeaderElection(namespace, name, id, revision, client),
		"Lease":        leaderelection.NewLeaseLeaderElection(namespace, name, id, revision, client),
		"per revision": leaderelection.NewPerRevisionLeaderElection(namespace, name, id, revision, client),
		"multicluster": leaderelection.NewLeaderElectionMulticluster(namespace, name, id, revision, false, client),
	}
}

// pkg/features registers the same variables with the same defaults as the constructors.
func TestConstructors_SameVariablesAsFeatures(t *testing.T) {
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

func TestConstructors_InvalidVariables(t *testing.T) {
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
					return // a valid value
				default:
					wants = append(wants, "1.5s") // the election rejects it
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

// With elections disabled, run functions start immediately. Run blocks until stop closes, and the process is the leader, even if the
// run functions have returned.
func TestDisabled_LeadsUntilStop(t *testing.T) {
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
			case <-time.After(100 * time.Millisecond): // a wrong return happens within microseconds
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
