package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

const (
	olderImage = "pilot-older"
	// watchEnd bounds the end of electionctl after an interrupt.
	watchEnd = 5 * time.Second
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

// run prints what to try, and then the changes of the elections until ctx ends.
func run(ctx context.Context, set settings, r *rollout.Rollout, out io.Writer) error {
	fmt.Fprintln(out, "Installing two revisions with Helm …")
	if err := set.install(ctx, r); err != nil {
		return err
	}
	urls, err := r.AwaitGateways(ctx)
	if err != nil {
		return err
	}
	pods, err := r.Pods(ctx, set.revisions()[0])
	if err != nil {
		return err
	}
	page := "http://" + net.JoinHostPort(pods[0].Status.PodIP, strconv.Itoa(rollout.PagePort)) + "/debug/elections"
	fmt.Fprint(out, set.guide(r, page, urls[0]))
	runtime.LockOSThread() // Pdeathsig belongs to the thread that starts the process
	defer runtime.UnlockOSThread()
	watch := exec.CommandContext(ctx, set.electionctl, "watch", "--namespace", rollout.Namespace, "--kubeconfig", r.Cluster.Kubeconfig())
	watch.Stdout, watch.Stderr = out, os.Stderr
	watch.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	watch.Cancel = func() error { return watch.Process.Signal(os.Interrupt) }
	watch.WaitDelay = watchEnd
	if err := watch.Run(); err != nil {
		return fmt.Errorf("electionctl watch: %w", err)
	}
	return nil
}

// guide returns the commands to try.
func (set settings) guide(r *rollout.Rollout, page, gateway string) string {
	other := set.revisions()[1]
	here, _ := os.Getwd() // else "": paths are absolute
	anywhere := shortest(r.Cluster.Kubectl())
	kubectl := anywhere + " -n " + rollout.Namespace
	electionctl := shortest(set.electionctl) + " -n " + rollout.Namespace
	lock := "configmap"
	if set.rollout.Coordinated {
		lock = "lease"
	}
	var text strings.Builder
	fmt.Fprintf(&text, `
The control plane runs in two revisions: %s. Open its elections page:

   %s

Each replica has this page at port %d of its address. Try in another terminal:

   cd %s
   export KUBECONFIG=%s

`, strings.Join(set.revisions(), " and "), page, rollout.PagePort, here, r.Cluster.Kubeconfig())
	for _, trial := range [][2]string{
		{"show the elections, and the replicas with their addresses", electionctl + " list\n   " + kubectl + " get pods -l app=pilot -L " + tagging.Label + " -o wide"},
		{"explain the leader, and preview another default revision",
			electionctl + " explain istio-leader\n   " + electionctl + " plan --default-revision " + other},
		{"make " + other + " the default revision", fmt.Sprintf("%s -n %s upgrade tags %s --set default=%s",
			shortest(set.rollout.Helm), rollout.Namespace, shortest(filepath.Join(set.rollout.Charts, "tags")), other)},
		{"scale a revision", kubectl + " scale deployment pilot-stable --replicas=3"},
		{"delete the Pods of a revision", kubectl + " delete pod -l " + tagging.Label + "=stable"},
		{"read the logs", kubectl + " logs -l " + tagging.Label + "=stable --prefix --tail=3"},
		{"delete a lock", kubectl + " delete " + lock + " " + rollout.NamespaceElection},
		{"create a namespace and see the ConfigMap that the leader creates in it", anywhere + " create namespace hello\n   " +
			anywhere + " -n hello get configmap istio-ca-root-cert"},
		{"show the sample, and send a request through its Gateway", anywhere + " -n " + rollout.Shop + " get gateway,httproute,ingress,deployment,service,pod\n   curl --include " + gateway},
	} {
		fmt.Fprintf(&text, "   # %s\n   %s\n", trial[0], trial[1])
	}
	text.WriteString("\nPress Ctrl-C to stop everything. The elections and their changes:\n\n")
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
