package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// upgrade is the story of one: each step, who leads after it, and how requests went so far.
type upgrade struct {
	*rollout.Rollout
	screen  *screen
	watched *clusterView
	journal *journal
}

// playUpgrade tells it, on a cluster of its own, and ends with the verdict of the API server's audit log.
func playUpgrade(ctx context.Context, set settings, out *screen) (err error) {
	began := time.Now()
	out.print("Starting etcd, kube-apiserver and kube-controller-manager …\n")
	r, err := rollout.Start(ctx, rollout.Options{
		Programs: set.programs, Pilot: set.pilot, Dataplane: set.dataplane, Helm: set.helmProgram, Charts: set.charts,
		Lease: set.timing.lease, Renew: set.timing.renew, Retry: set.timing.retry, Seed: uint64(began.UnixNano()),
		Say: func(text string) { out.say(time.Now(), "%s", text) },
	})
	defer func() {
		out.print("\nEnding everything …\n")
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), teardownLimit)
		defer cancel()
		err = errors.Join(err, r.End(ctx))
		out.print(fmt.Sprintf("Everything has ended; %s in all.\n", round(time.Since(began))))
	}()
	if err != nil {
		return err
	}
	watchCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	u := &upgrade{Rollout: r, screen: out, journal: &journal{}}
	if u.watched, err = watchCluster(ctx, watchCtx, r.Kube); err != nil {
		stop()
		return err
	}
	var listening sync.WaitGroup
	var heard error
	listeners := &processes{pods: r.Node.Pods, journal: u.journal, byUID: map[types.UID]*podProcess{}}
	listening.Go(func() { heard = listeners.run(watchCtx) })
	defer func() {
		stop()
		listening.Wait()
		u.watched.wait()
		err = errors.Join(err, heard)
	}()
	return u.play(ctx)
}

// play does the steps.
func (u *upgrade) play(ctx context.Context) error {
	stable, canary := rollout.Release{Revision: "stable", Replicas: 3}, rollout.Release{Revision: "canary", Replicas: 2}
	install := func(release rollout.Release) func() error { return func() error { return u.Install(ctx, release) } }
	uninstall := func(revision string) func() error { return func() error { return u.Uninstall(ctx, revision) } }
	flip := func(revision string) func() error {
		return func() error {
			if err := u.Flip(ctx, revision); err != nil {
				return err
			}
			if err := u.AwaitLeads(ctx, revision); err != nil {
				return err
			}
			return u.Settle(ctx)
		}
	}
	steps := []func() error{
		install(stable), flip("stable"), func() error { return u.Work(ctx) }, install(canary), flip("canary"),
		uninstall("stable"), install(stable), flip("stable"), uninstall("canary"),
	}
	for _, step := range steps {
		if err := step(); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		u.show()
	}
	if err := u.Rest(); err != nil {
		return err
	}
	v, err := u.Settled(ctx)
	if err != nil {
		return err
	}
	u.screen.print("\nThe verdict, by the API server's audit log:\n" + v.Figures.String())
	if err := errors.Join(v.Err(), overlap(u.journal.all(), time.Now())); err != nil {
		return err
	}
	u.screen.print("Nobody wrote beside another, nothing was written back, every object is as wanted.\n")
	return nil
}

// show prints who leads, and how the requests went.
func (u *upgrade) show() {
	v, _ := u.watched.now()
	u.screen.print("\n" + strings.Join(u.table(v), "\n") + "\n")
	if r := u.Requests(); r.Sent > 0 {
		u.screen.print(fmt.Sprintf("HTTP requests so far: %d, %d failed\n", r.Sent, r.Failed))
	}
	u.screen.print("\n")
}

// table is as wide as the terminal, where there is one.
func (u *upgrade) table(v view) []string {
	return table(v, u.journal.all(), settings{}.lockNames(), u.screen.columns())
}
