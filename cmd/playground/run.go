package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

const (
	olderImage = "pilot-older"
	// lookInterval is the interval between two views, lookLimit bounds one view.
	lookInterval = 300 * time.Millisecond
	lookLimit    = 2 * time.Second
)

// revisions returns the revisions in the order of their installation. The first is the default revision at the start.
func (set settings) revisions() []string {
	if set.rollout.Coordinated { // the newer version is installed later
		return []string{"canary", "stable"}
	}
	return []string{"stable", "canary"}
}

// install installs both revisions.
func (set settings) install(ctx context.Context, r *rollout.Rollout) error {
	for i, revision := range set.revisions() {
		release := rollout.Release{Revision: revision, Replicas: 2, WithoutElections: set.withoutElections}
		if set.rollout.Coordinated && i == 0 {
			release.Image = olderImage
		}
		if set.withoutElections {
			release.Replicas = 1 // the chart allows no more
		}
		if err := r.Apply(ctx, release); err != nil {
			return err
		}
		if err := r.AwaitReady(ctx, revision, int(release.Replicas)); err != nil {
			return err
		}
		if i == 0 {
			if err := r.Flip(ctx, revision); err != nil {
				return err
			}
		}
	}
	return nil
}

// run shows the elections until ctx ends.
func run(ctx context.Context, set settings, r *rollout.Rollout, out *screen) error {
	out.print("Installing two revisions with Helm …\n")
	if err := set.install(ctx, r); err != nil {
		return err
	}
	urls, err := r.AwaitGateways(ctx)
	if err != nil {
		return err
	}
	var before view
	available := true
	for first := true; ctx.Err() == nil; first = false {
		v, err := lookOnce(ctx, r, urls[0])
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			if first {
				out.print(set.guide(r, v))
			} else {
				for _, line := range changes(before, v) {
					out.line("%s", line)
				}
			}
			if !available {
				out.line("the API server is available")
			}
			if out.size == nil {
				v.answeredBy = "" // it changes with each request, and without a terminal each change prints the table again
			}
			out.show(v.table())
			before = v
		case available:
			out.line("the API server is not available, the table is out of date: %v", err)
		}
		available = err == nil
		_ = apirequest.Pause(ctx, lookInterval)
	}
	return nil
}

func lookOnce(ctx context.Context, r *rollout.Rollout, gateway string) (view, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lookLimit, errors.New("no response"))
	defer cancel()
	return look(ctx, r.Kube, r.Node.Pods(), gateway)
}

// guide returns the commands to try.
func (set settings) guide(r *rollout.Rollout, v view) string {
	page := ""
	for name, replica := range v.replicas {
		if page == "" || name == v.elections[rollout.NamespaceElection].Holder {
			page = pageURL(replica.address)
		}
	}
	other := set.revisions()[1]
	kubectl := shortest(r.Cluster.Kubectl()) + " -n " + rollout.Namespace
	electionctl := shortest(filepath.Join(filepath.Dir(set.rollout.Helm), "electionctl")) + " -n " + rollout.Namespace
	lock := "configmap"
	if set.rollout.Coordinated {
		lock = "lease"
	}
	var text strings.Builder
	fmt.Fprintf(&text, `
The control plane runs in two revisions: %s. Open its elections page:

   %s

Each replica has this page at port %d of its address in the table. Try in another terminal:

   export KUBECONFIG=%s

`, strings.Join(set.revisions(), " and "), page, rollout.PagePort, r.Cluster.Kubeconfig())
	for _, trial := range [][2]string{
		{"explain the leader, and preview another default revision",
			electionctl + " explain istio-leader\n   " + electionctl + " plan --default-revision " + other},
		{"make " + other + " the default revision", fmt.Sprintf("%s -n %s upgrade tags %s --set default=%s",
			shortest(set.rollout.Helm), rollout.Namespace, shortest(filepath.Join(set.rollout.Charts, "tags")), other)},
		{"scale a revision", kubectl + " scale deployment pilot-stable --replicas=3"},
		{"delete the Pods of a revision", kubectl + " delete pod -l " + tagging.Label + "=stable"},
		{"read the logs", kubectl + " logs -l " + tagging.Label + "=stable --prefix --tail=3"},
		{"delete a lock", kubectl + " delete " + lock + " " + rollout.NamespaceElection},
		{"create a namespace and see the ConfigMap that the leader creates in it", kubectl + " create namespace hello\n   " +
			shortest(r.Cluster.Kubectl()) + " -n hello get configmap istio-ca-root-cert"},
		{"show the sample", shortest(r.Cluster.Kubectl()) + " -n " + rollout.Shop + " get gateway,httproute,ingress,deployment,service,pod"},
	} {
		fmt.Fprintf(&text, "   # %s\n   %s\n", trial[0], trial[1])
	}
	text.WriteString("\nPress Ctrl-C to stop everything.\n")
	return text.String()
}

// shortest returns a path relative to the working directory, if it is below it.
func shortest(path string) string {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	here, err := os.Getwd()
	if err != nil {
		return path
	}
	if short, err := filepath.Rel(here, absolute); err == nil && !strings.HasPrefix(short, "..") {
		return short
	}
	return absolute
}
