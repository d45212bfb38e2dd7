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

// Every flag and variable sets the one field that it is for, and no other: what is handed to
// the server and to the fence is compared field by field. What they make of it is in effects.

// fieldOf are the fields of flags whose names are not those of their fields.
var fieldOf = map[string]string{
	"other-service-account": "Others",
	"kubeconfig":            "Kubernetes.Path", "context": "Kubernetes.Context", "kube-qps": "QPS", "kube-burst": "Burst",
	"ingress-controller-mode": "IngressMode", "pprof": "Profiling", "service-account": "ServiceAccounts", "coordinator": "Coordinators", "api-server": "APIServers",
}

// notHanded are flags that the command line itself acts on.
var notHanded = []string{"log-level", "log-as-json", "log-target", "help"}

// sample is a value of a flag's type that is the default of none, and how its field shows it.
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
	default:
		t.Fatalf("--%s is a %s: give an example", f.Name, kind)
		return "", ""
	}
}

// handed is what a command line hands over, and the fence's verb, field by field.
func handed(t *testing.T, args ...string) map[string]string {
	t.Helper()
	fields := map[string]string{}
	root := command(programs{
		serve: func(_ context.Context, c bootstrap.Config) error {
			flatten(fields, "", reflect.ValueOf(c))
			return nil
		},
		fence: func(_ context.Context, verb string, c install.Config, _ io.Writer) error {
			flatten(fields, "", reflect.ValueOf(c))
			fields["Elections"] = fmt.Sprint(len(c.Elections) < 2) // one of two is off
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

// flatten notes the fields of a structure, those of structures within it too.
func flatten(into map[string]string, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		name, field := prefix+v.Type().Field(i).Name, v.Field(i)
		switch field.Kind() {
		case reflect.Struct:
			flatten(into, name+".", field)
		case reflect.Func:
			into[name] = fmt.Sprint("there: ", !field.IsNil())
		default:
			into[name] = fmt.Sprint(field)
		}
	}
}

// changed are the fields that differ, with what they are now.
func changed(before, after map[string]string) map[string]string {
	differ := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] != after[name] {
			differ[name] = after[name]
		}
	}
	return differ
}

// handing are the commands that hand something over, with their words.
func handing(t *testing.T) map[string]*cobra.Command {
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

// setVariables sets every variable to a value that is its default nowhere, and returns them.
func setVariables(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, v := range features.List() {
		all[v.Name] = otherValue(t, v)
		t.Setenv(v.Name, all[v.Name])
	}
	return all
}

func clearVariables(t *testing.T) {
	t.Helper()
	for _, v := range features.List() {
		t.Setenv(v.Name, "")
	}
}

// otherValue is one that a variable may have and has not by default.
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

func TestEveryFlagSetsItsFieldAlone(t *testing.T) {
	for name, prepare := range map[string]func(*testing.T){
		"without an environment": clearVariables,
		"before the environment": func(t *testing.T) { t.Helper(); setVariables(t) },
	} {
		t.Run(name, func(t *testing.T) {
			prepare(t)
			for words, c := range handing(t) {
				args := strings.Fields(words)
				before := handed(t, args...)
				flags := 0
				for _, set := range []*pflag.FlagSet{c.Flags(), c.InheritedFlags()} {
					set.VisitAll(func(f *pflag.Flag) {
						if slices.Contains(notHanded, f.Name) {
							return
						}
						flags++
						value, shown := sample(t, f)
						// Istiod's flags have underscores.
						for _, flag := range []string{f.Name, strings.ReplaceAll(f.Name, "-", "_")} {
							got := changed(before, handed(t, append(args, "--"+flag+"="+value)...))
							if uid, there := got["PodUID"]; f.Name == "identity" && there && uid == "" {
								delete(got, "PodUID") // which is of the Pod that POD_NAME names
							}
							if len(got) != 1 || got[theField(before, f.Name)] != shown {
								t.Errorf("pilot %s --%s=%s: it sets %v", words, flag, value, got)
							}
						}
					})
				}
				if flags < 10 {
					t.Errorf("pilot %s has but %d flags", words, flags)
				}
			}
		})
	}
}

// theField is the name of a flag's field: without regard to hyphens and case, that of the flag.
func theField(fields map[string]string, flag string) string {
	if field := fieldOf[flag]; field != "" {
		return field
	}
	for field := range fields {
		if strings.EqualFold(field, strings.ReplaceAll(flag, "-", "")) {
			return field
		}
	}
	return ""
}

// fieldsOfVariables are what the variables set, of the server and of the fence.
var fieldsOfVariables = map[string][2]string{
	"POD_NAMESPACE": {"Namespace", "Namespace"}, "POD_NAME": {"Identity"}, "POD_UID": {"PodUID"}, "ENABLE_MEMBER_LEASE": {"DisableMember"}, "ENABLE_COORDINATOR": {"Coordinator"}, "ELECTION_STRATEGY": {"ElectionStrategy"}, "ENABLE_OLDEST_EMULATION_VERSION": {"OldestEmulation"}, "EMULATION_VERSION": {"EmulationVersion"}, "REVISION": {"Revision"}, "CLUSTER_ID": {"ClusterID"},
	"KUBECONFIG": {"Kubernetes.List", "Kubernetes.List"}, "LEADER_ELECTION_LOCK": {"Lock", "Lock"},
	"LEADER_ELECTION_LEASE_DURATION": {"LeaseDuration"}, "LEADER_ELECTION_RENEW_DEADLINE": {"RenewDeadline"}, "LEADER_ELECTION_RETRY_PERIOD": {"RetryPeriod"},
	"ENABLE_WRITE_FENCE": {"Fence"},
	// These are for what is there by default, and the fields for its absence.
	"ENABLE_LEADER_ELECTION": {"DisableElections"}, "ENABLE_WRITE_GATE": {"DisableGate"},
	"PILOT_ENABLE_GATEWAY_API":                         {"DisableGatewayAPI", "Elections"},
	"PILOT_ENABLE_GATEWAY_API_STATUS":                  {"DisableGatewayStatus"},
	"PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER":   {"DisableGatewayDeployment", "Elections"},
	"PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER": {"DisableGatewayClass"},
}

func TestEveryVariableSetsItsFieldAlone(t *testing.T) {
	clearVariables(t)
	for _, v := range features.List() {
		fields, known := fieldsOfVariables[v.Name]
		if !known {
			t.Errorf("nobody says what %s sets: give it an entry in fieldsOfVariables", v.Name)
			continue
		}
		for i, words := range []string{"server", "fence render"} {
			before := handed(t, strings.Fields(words)...)
			value := otherValue(t, v)
			t.Setenv(v.Name, value)
			got := changed(before, handed(t, strings.Fields(words)...))
			t.Setenv(v.Name, "")
			if v.Type == "boolean" {
				value = "true"
			}
			want := map[string]string{fields[i]: value}
			if fields[i] == "" {
				want = map[string]string{}
			}
			if !maps.Equal(got, want) {
				t.Errorf("pilot %s with %s: it sets %v, not %v", words, v.Name, got, want)
			}
		}
	}
}

// What every server and every fence is told whatever the flags are.
func TestWhatIsHandedOverWithoutFlags(t *testing.T) {
	clearVariables(t)
	server := handed(t, "server")
	for field, want := range map[string]string{
		"ExitOnStuckDrain": "true", "Logger": "<nil>", "RESTConfig": "<nil>", "DisableElections": "false", "DisableGate": "false", "Fence": "false", "DisableMember": "false", "PodUID": "", "Coordinator": "false", "ElectionStrategy": "", "OldestEmulation": "false", "EmulationVersion": "",
		"DisableGatewayAPI": "false", "DisableGatewayStatus": "false", "DisableGatewayDeployment": "false", "DisableGatewayClass": "false",
		"Namespace": "istio-system", "Lock": "configmap", "Address": ":15014", "QPS": "40", "Burst": "60", "ExcludedNamespaces": "[]", "Profiling": "false",
		"LeaseDuration": "30s", "RenewDeadline": "15s", "RetryPeriod": "7.5s", "ShutdownTimeout": "0s",
	} {
		if server[field] != want {
			t.Errorf("the server's %s is %q, not %q", field, server[field], want)
		}
	}
	for _, verb := range []string{"render", "install", "verify", "report", "remove"} {
		want := map[string]string{
			"verb": verb, "Namespace": "istio-system", "Lock": "configmap", "Wait": "30s", "Output": "table", "AuditLog": "-",
		}
		for field, value := range handed(t, "fence", verb) {
			// Whatever is not named here is nothing.
			if expected, named := want[field]; named && value != expected || !named && !slices.Contains([]string{"", "[]", "false", "0s", "<nil>"}, value) {
				t.Errorf("pilot fence %s: its %s is %q, want %q", verb, field, value, expected)
			}
		}
	}
}
