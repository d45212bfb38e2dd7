package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/pilot/bootstrap"
	"incumbent.dev/incumbent/pkg/features"
)

// fieldOf maps flags to fields with a different name.
var fieldOf = map[string]string{
	"other-service-account": "Others", "discovery-selector": "DiscoverySelectors",
	"kubeconfig": "Kubernetes.Path", "context": "Kubernetes.Context", "kube-qps": "QPS", "kube-burst": "Burst",
	"ingress-controller-mode": "IngressMode", "pprof": "Profiling", "lock": "LockType", "witness": "WitnessMode", "shutdown-timeout": "StopLimit", "service-account": "ServiceAccounts", "coordinator": "Coordinators", "api-server": "APIServers",
}

// commandFlags are flags that the command uses itself.
var commandFlags = []string{"log-level", "log-as-json", "log-target", "help"}

// sample returns a value that no flag of the type has by default, and the printed value of its field.
func sample(t *testing.T, f *pflag.Flag) (value, shown string) {
	t.Helper()
	switch kind := f.Value.Type(); kind {
	case "string":
		return "given", "given"
	case "bool":
		other := fmt.Sprint(f.DefValue != "true")
		return other, other
	case "duration":
		return "7m3s", "7m3s"
	case "float32":
		return "7.5", "7.5"
	case "int":
		return "7", "7"
	case "stringSlice":
		return "one,two", "[one two]"
	case "stringArray":
		return "one in (two,three)", "[one in (two,three)]"
	default:
		t.Fatalf("--%s has the type %s: add a sample", f.Name, kind)
		return "", ""
	}
}

// parsed returns the fields of the configuration that a command line creates, and the verb of a fence command.
func parsed(t *testing.T, args ...string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	root := command(programs{
		serve: func(_ context.Context, c bootstrap.Config) error {
			flatten(fields, "", reflect.ValueOf(c))
			return nil
		},
		fence: func(_ context.Context, verb string, c install.Config, _ io.Writer) error {
			flatten(fields, "", reflect.ValueOf(c))
			fields["Elections"] = fmt.Sprint(!reflect.DeepEqual(c.Elections, bootstrap.FencedElections(bootstrap.Config{}))) // some guard no writes
			fields["verb"] = verb
			return nil
		},
	})
	root.SetArgs(args)
	root.SetOut(io.Discard)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatalf("pilot %q: %v", args, err)
	}
	return fields
}

// flatten adds the fields of a structure and of nested structures.
func flatten(into map[string]string, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		name, field := prefix+v.Type().Field(i).Name, v.Field(i)
		switch embedded := v.Type().Field(i).Anonymous; {
		case field.Kind() == reflect.Struct && embedded:
			flatten(into, prefix, field)
		case field.Kind() == reflect.Struct:
			flatten(into, name+".", field)
		case field.Kind() == reflect.Func:
			into[name] = fmt.Sprint("set: ", !field.IsNil())
		default:
			into[name] = fmt.Sprint(field)
		}
	}
}

// changed returns the new values of fields that differ.
func changed(before, after map[string]string) map[string]string {
	differ := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			differ[name] = after[name]
		}
	}
	return differ
}

// configured returns the commands that create a configuration, by their words.
func configured(t *testing.T) map[string]*cobra.Command {
	t.Helper()
	all := map[string]*cobra.Command{}
	for _, c := range command(programs{}).Commands() {
		switch c.Name() {
		case "server":
			all["server"] = c
		case "fence":
			for _, verb := range c.Commands() {
				all["fence "+verb.Name()] = verb
			}
		}
	}
	if len(all) != 6 {
		t.Fatalf("the commands are %v", slices.Sorted(maps.Keys(all)))
	}
	return all
}

func setVariables(t *testing.T) {
	t.Helper()
	for _, v := range features.List() {
		t.Setenv(v.Name, otherValue(t, v))
	}
}

func clearVariables(t *testing.T) {
	t.Helper()
	for _, v := range features.List() {
		t.Setenv(v.Name, "")
	}
}

// otherValue returns a valid value that is not the default.
func otherValue(t *testing.T, v features.Flag) string {
	t.Helper()
	switch {
	case v.Type == "boolean":
		return fmt.Sprint(v.Default != "true")
	case v.Type == "duration":
		return "11m1s"
	case v.Name == "LEADER_ELECTION_LOCK":
		return "lease"
	default:
		return "by-env"
	}
}

func TestFlagSetsOneField(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T){
		"without environment":   clearVariables,
		"overrides environment": setVariables,
	} {
		t.Run(name, func(t *testing.T) {
			prepare(t)
			for words, c := range configured(t) {
				args := strings.Fields(words)
				before := parsed(t, args...)
				if verb := before["verb"]; words != "server" && words != "fence "+verb {
					t.Errorf("pilot %s runs the verb %q", words, verb)
				}
				if words == "server" && before["ExitOnStuckDrain"] != "true" {
					t.Error("a server with a stuck controller does not exit")
				}
				flags := 0
				for _, set := range []*pflag.FlagSet{c.Flags(), c.InheritedFlags()} {
					set.VisitAll(func(f *pflag.Flag) {
						if slices.Contains(commandFlags, f.Name) {
							return
						}
						flags++
						value, shown := sample(t, f)
						// The flags of istiod have underscores.
						for _, flag := range []string{f.Name, strings.ReplaceAll(f.Name, "-", "_")} {
							got := changed(before, parsed(t, append(args, "--"+flag+"="+value)...))
							if uid, exists := got["PodUID"]; f.Name == "identity" && exists && uid == "" {
								delete(got, "PodUID") // it belongs to the Pod of POD_NAME
							}
							if len(got) != 1 || got[fieldName(before, f.Name)] != shown {
								t.Errorf("pilot %s --%s=%s: sets %v", words, flag, value, got)
							}
						}
					})
				}
				if flags < 10 {
					t.Errorf("pilot %s has %d flags", words, flags)
				}
			}
		})
	}
}

// fieldName returns the name of a flag's field: by default the name of the flag without hyphens, in any case.
func fieldName(fields map[string]string, flag string) string {
	if _, exists := fields[fieldOf[flag]]; exists {
		return fieldOf[flag]
	}
	for field := range fields {
		if strings.EqualFold(field, strings.ReplaceAll(flag, "-", "")) {
			return field
		}
	}
	return ""
}

// fieldsOfVariables maps variables to the fields that they set, of the server and of the fence.
var fieldsOfVariables = map[string][2]string{
	"POD_NAMESPACE": {"Namespace", "Namespace"}, "POD_NAME": {"Identity"}, "POD_UID": {"PodUID"}, "ENABLE_MEMBER_LEASE": {"DisableMember"}, "ENABLE_COORDINATOR": {"Coordinator"}, "ELECTION_STRATEGY": {"ElectionStrategy"}, "ENABLE_OLDEST_EMULATION_VERSION": {"OldestEmulation"}, "EMULATION_VERSION": {"EmulationVersion"}, "REVISION": {"Revision"}, "CLUSTER_ID": {"ClusterID"},
	"KUBECONFIG": {"Kubernetes.List", "Kubernetes.List"}, "LEADER_ELECTION_LOCK": {"LockType", "Lock"},
	"LEADER_ELECTION_LEASE_DURATION": {"LeaseDuration"}, "LEADER_ELECTION_RENEW_DEADLINE": {"RenewDeadline"}, "LEADER_ELECTION_RETRY_PERIOD": {"RetryPeriod"},
	"ENABLE_WRITE_FENCE": {"Fence"}, "K8S_INGRESS_NS": {"IngressNamespace"},
	// These fields are negations.
	"ENABLE_LEADER_ELECTION": {"Disabled"}, "ENABLE_WRITE_GATE": {"DisableGate"},
	"PILOT_ENABLE_GATEWAY_API":                         {"DisableGatewayAPI", "Elections"},
	"PILOT_ENABLE_GATEWAY_API_STATUS":                  {"DisableGatewayStatus"},
	"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER":   {"DisableGatewayDeployment", "Elections"},
	"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": {"DisableGatewayClass"},
}

func TestVariableSetsOneField(t *testing.T) {
	clearVariables(t)
	for _, v := range features.List() {
		fields, known := fieldsOfVariables[v.Name]
		if !known {
			t.Errorf("%s has no entry in fieldsOfVariables", v.Name)
			continue
		}
		for i, words := range []string{"server", "fence render"} {
			before := parsed(t, strings.Fields(words)...)
			value := otherValue(t, v)
			t.Setenv(v.Name, value)
			got := changed(before, parsed(t, strings.Fields(words)...))
			t.Setenv(v.Name, "")
			if v.Type == "boolean" {
				value = "true"
			}
			want := map[string]string{fields[i]: value}
			if fields[i] == "" {
				want = map[string]string{}
			}
			if !maps.Equal(got, want) {
				t.Errorf("pilot %s with %s: sets %v, want %v", words, v.Name, got, want)
			}
		}
	}
}
