package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/hashicorp/go-multierror"
	rbacv1 "k8s.io/api/rbac/v1"

	"incumbent.dev/incumbent/internal/fence"
	"incumbent.dev/incumbent/internal/fence/install"
	"incumbent.dev/incumbent/internal/record"
	"incumbent.dev/incumbent/tests/cluster"
)

// account is the service account of the candidates that a fence knows.
const account = "pilot"

// killing is a row of the scenario kill.
type killing struct {
	setup
	name    string
	witness bool // the parent of the process; with a fence
	// elections run in each process. Each round kills one process.
	elections, rounds int
}

// kill measures the time from SIGKILL of the process of a leader to the start of the successor's run function in another process.
func (l *lab) kill(s *Scenario) error {
	// Rounds without a witness wait for a lease, so many elections do it concurrently.
	elections, rounds := 12, choose(l, 1, 4)
	var all multierror.Group
	for _, k := range []killing{
		{setups[0], Ours, true, 1, choose(l, 10, 100)},
		{setups[0], Ours + ", no witness", false, elections, rounds},
		{setups[1], Istio, false, elections, rounds},
		{setups[2], ClientGo, false, elections, rounds},
	} {
		series := k.series("")
		series.Library = k.name
		row := newRow(s, series)
		all.Go(func() error { return l.killAll(k, row) })
		if k.witness {
			_ = all.Wait() // milliseconds are measured alone
		}
	}
	return all.Wait().ErrorOrNil()
}

// killAll runs the rounds of a row.
func (l *lab) killAll(k killing, row *row) error {
	namespace, err := l.cluster.NewNamespace(l.ctx, "kill")
	if err != nil {
		return err
	}
	if k.witness {
		set, err := fence.Render(namespace, fence.Declaration{
			Election: "e-0", Namespace: namespace, Lock: record.ConfigMap, ServiceAccounts: []string{namespace + "/" + account},
			Guards: []fence.Guard{{Resources: []string{"secrets"}, Names: []string{"guarded"}, Namespaces: []string{namespace}}},
		})
		if err == nil {
			_, err = install.Apply(l.ctx, l.admin, set)
		}
		if err != nil {
			return err
		}
		defer func() { _, _ = install.Remove(l.ctx, l.admin, set.Name) }()
	}
	folder, err := os.MkdirTemp("", "bench") // a parent reads its kubeconfig after the death
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	leader, err := l.enterKilled(k, namespace, folder, 0)
	if err != nil {
		return err
	}
	defer func() { leader.end() }()
	if _, err := l.leading(leader, k.elections); err != nil {
		return err
	}
	for round := range k.rounds {
		next, err := l.enterKilled(k, namespace, folder, round+1)
		if err != nil {
			return err
		}
		state, err := leader.sample(false)
		if err == nil && !k.witness {
			err = l.phase(k.timing)
		} else if err == nil {
			err = l.pause(time.Second) // the follower reads the lock
		}
		killed := time.Now()
		if err == nil {
			err = syscall.Kill(state.PID, syscall.SIGKILL)
		}
		leader.cleanUp()
		leader = next
		if err != nil {
			return err
		}
		state, err = l.leading(leader, k.elections)
		if err != nil {
			return err
		}
		for _, start := range state.Began {
			row.time(start.Sub(killed))
		}
	}
	return nil
}

// enterKilled starts a process with candidates. Its kubeconfig is in the folder if it has a witness.
func (l *lab) enterKilled(k killing, namespace, folder string, n int) (*child, error) {
	identity := fmt.Sprint("replica-", n)
	kubeconfig := l.cluster.Kubeconfig()
	if k.witness {
		kubeconfig = filepath.Join(folder, identity)
		config, err := l.cluster.NewIdentity(l.ctx, cluster.IdentityOptions{
			Namespace: namespace, PodName: identity, ServiceAccount: account,
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{"", "coordination.k8s.io"}, Resources: []string{"configmaps", "leases", "events"}, Verbs: []string{"*"},
			}},
			ClusterRules: []rbacv1.PolicyRule{{
				APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations"}, Verbs: []string{"get", "list", "watch"},
			}},
		})
		if err == nil {
			err = cluster.WriteKubeconfig(kubeconfig, config, "")
		}
		if err != nil {
			return nil, err
		}
	}
	c, err := l.newChild(k.library, kubeconfig, k.witness)
	if err != nil {
		return nil, err
	}
	spec := k.spec(namespace, "e", identity)
	if err := c.enter(Candidates{Spec: spec, Elections: k.elections, Over: k.timing.Retry / 4}); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}
