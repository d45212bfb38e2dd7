package bootstrap

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/blang/semver/v4"
	"go.uber.org/atomic"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/members"
	"incumbent.dev/incumbent/internal/watch"
	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/pkg/kube"
)

// coordination returns how a coordinator chooses the leader of a row. It is nil if the row is not coordinated. A strategy
// chooses between revisions, so elections of one revision are not coordinated.
func (c Config) coordination(row election) *coordination.CandidateConfig {
	if c.ElectionStrategy == "" || row.perRevision || row.uncoordinated || c.Disabled {
		return nil
	}
	how := &coordination.CandidateConfig{
		Strategy: c.ElectionStrategy, BinaryVersion: semanticVersion(ReadBuild().Version), EmulationVersion: c.EmulationVersion,
	}
	if !c.Remote { // a Pod of another cluster cannot be an owner
		how.PodUID = types.UID(c.PodUID)
	}
	return how
}

// semanticVersion returns text without a leading v, and 0.0.0 if it is no semantic version.
func semanticVersion(text string) string {
	text = strings.TrimPrefix(text, "v")
	if _, err := semver.Parse(text); err != nil {
		return "0.0.0"
	}
	return text
}

// coordinator creates the coordinator.
func coordinator(client kube.Client, config Config, tools tools) (job, error) {
	// Its client has no rate limit, because controllers send many requests when a term starts.
	quiet, err := kube.NewClient(client.RESTConfig(), kube.WithRateLimit(-1, 0))
	if err != nil {
		return nil, err
	}
	strategies := coordination.Own()
	if config.OldestEmulation {
		strategies[coordination.OldestEmulationVersion] = coordination.ByOldestEmulationVersion
	}
	c, err := coordination.New(coordination.Config{
		Client: quiet.Kube(), Namespace: config.Namespace, EventRecorder: tools.events, Logger: tools.log,
		Strategies: strategies,
		Situation: func() (coordination.Situation, bool) {
			return coordination.Situation{DefaultRevision: tools.watcher.GetDefault()}, tools.watcher.HasSynced()
		},
	})
	if err != nil {
		return nil, err
	}
	tools.watcher.AddHandler(func(string) { c.Refresh() })
	return c, nil
}

const (
	// coordinatorLook is the interval at which the state of the coordinator's lock is checked, without requests.
	coordinatorLook = time.Second
	// coordinatorLeases is the number of lease durations after which a coordinator counts as absent.
	coordinatorLeases = 3
)

// followsCoordinator reports whether the elections of the site need the coordinator of this project. The coordinator of Kubernetes has
// another lock.
func (c Config) followsCoordinator() bool {
	_, own := coordination.Own()[c.ElectionStrategy]
	return (own || c.Coordinator && c.ElectionStrategy != "") && !c.Disabled && !c.Remote
}

// followCoordinator informs the coordinated elections of the site if no server holds the lock of the coordinator.
func (s *site) followCoordinator(ctx context.Context) error {
	const of = " Lease " + leaderelection.Coordinator
	trouble := apirequest.NewTrouble(s.log, map[string]string{
		"get" + of: "a leader that a coordinator named is not replaced if the coordinator is gone", "watch" + of: "polling",
	})
	// idle is the time since the last renewal of the lock. It does not include times without a working watch.
	var idle atomic.Duration
	var current atomic.Bool
	version := "" // the last one with a holder
	longest := cmp.Or(s.config.LeaseDuration, leaderelection.DefaultLeaseDuration)
	lease := watch.Objects[*coordinationv1.Lease]{
		Source: watch.SourceOf(s.own.Kube().CoordinationV1().Leases(s.config.Namespace), func(list *coordinationv1.LeaseList) []coordinationv1.Lease { return list.Items }),
		Name:   leaderelection.Coordinator, LongestPause: longest,
		Tried:   func(verb string, err error) { trouble.Tried(verb+of, err) },
		Current: current.Store,
		Changed: func(leases []*coordinationv1.Lease) {
			for _, lease := range leases {
				if ptr.Deref(lease.Spec.HolderIdentity, "") != "" && lease.ResourceVersion != version {
					version = lease.ResourceVersion
					idle.Store(0)
				}
			}
		},
	}
	var watching sync.WaitGroup
	watching.Go(func() { lease.Run(ctx) })
	defer watching.Wait()
	for apirequest.Pause(ctx, coordinatorLook) == nil {
		if current.Load() {
			idle.Add(coordinatorLook)
		}
		absent := idle.Load() >= coordinatorLeases*longest
		for _, le := range s.mine {
			if le.Status().Strategy != "" {
				le.SetCoordinatorAbsent(absent)
			}
		}
	}
	return nil
}

// memberless reports whether the server publishes no member Lease.
func (c Config) memberless() bool { return c.DisableMember || c.Disabled }

// publish creates the publisher of the member Lease.
func (s *site) publish() (err error) {
	if s.config.memberless() {
		return nil
	}
	config := members.Config{
		Client: s.own.Kube(), Namespace: s.config.Namespace, Identity: s.config.Identity, State: s.memberState, Logger: s.log,
	}
	if !s.config.Remote { // a Pod of another cluster cannot be an owner
		config.PodUID = types.UID(s.config.PodUID)
	}
	s.member, err = members.New(config)
	return err
}

// refusal returns why the API server rejects the writes of a candidate. If a webhook does not respond, the elector cannot decide whether
// its write was stored, but the cause is known.
func refusal(now leaderelection.Status) string {
	if now.Rejected == "" && strings.Contains(now.Failed, "failed calling webhook") {
		return now.Failed
	}
	return now.Rejected
}

func (s *site) memberState() members.State {
	state := members.State{Revision: s.config.Revision, Cluster: members.Local, Version: ReadBuild().Version}
	if s.config.Remote {
		state.Cluster = members.Remote
	}
	if s.witness != nil {
		state.Witness = WitnessParent
		if s.config.WitnessMode == WitnessSocket {
			state.Witness = "sidecar"
		}
		if !s.witness.Connected() {
			state.Witness = inspect.UnreachableWitness
		}
	}
	for _, le := range s.mine {
		now := le.Status()
		state.Elections = append(state.Elections, members.Election{Name: now.Lock, Candidate: now.Running, Warm: now.Warm, Fit: !now.Unfit, BackingOff: now.BackingOff && !now.Leading, Strategy: now.Strategy, Uncoordinated: now.Uncoordinated, Refused: refusal(now)})
	}
	slices.SortFunc(state.Elections, func(a, b members.Election) int { return strings.Compare(a.Name, b.Name) })
	return state
}
