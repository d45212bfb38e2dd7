package ctl

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// say is what electionctl prints for these arguments, of those that need no API server.
func say(args ...string) (code int, out string) {
	var b bytes.Buffer
	p := &Program{IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &b, ErrOut: &b}}
	code = p.Run(context.Background(), args)
	return code, b.String()
}

// The help of each command, with its flags and their defaults.
func TestHelp(t *testing.T) {
	var b strings.Builder
	var tell func(c *cobra.Command, path []string)
	tell = func(c *cobra.Command, path []string) {
		code, out := say(append(path, "--help")...)
		if code != Done {
			t.Errorf("%q: exit code %d", path, code)
		}
		b.WriteString("$ electionctl " + strings.Join(append(path, "--help"), " ") + "\n" + out + "\n")
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "completion" && sub.Name() != "help" { // those are cobra's
				tell(sub, append(path[:len(path):len(path)], sub.Name()))
			}
		}
	}
	tell((&Program{}).Command(), nil)
	golden(t, "help.txt", b.String())
}

// Words that no command takes are named.
func TestWordsTooMany(t *testing.T) {
	for _, command := range []string{"list", "doctor", "plan"} {
		if code, out := say(command, "surplus"); code != Misused || !strings.Contains(out, `what is "surplus"?`) {
			t.Errorf("%s: exit code %d, %q", command, code, out)
		}
	}
}

// What the API server says comes with the next step.
func TestErrorsAreExplained(t *testing.T) {
	leases := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	var c coded
	if err := explained(apierrors.NewForbidden(leases, "x", errors.New("no"))); !errors.As(err, &c) || c.code != Refused || !strings.Contains(err.Error(), "kubectl auth can-i") {
		t.Errorf("forbidden: %v", err)
	}
	if err := explained(apierrors.NewUnauthorized("no token")); err == nil || !strings.Contains(err.Error(), "no token; renew your credentials") {
		t.Errorf("unauthorized: %v", err)
	}
	if err := explained(apierrors.NewNotFound(leases, "x")); err == nil || !apierrors.IsNotFound(err) {
		t.Errorf("not found: %v", err)
	}
}
