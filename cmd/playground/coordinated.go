package main

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection"
	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/admin"
	locks "incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/k8sresourcelock"
)

// coordinatedScript is the demo where a coordinator chooses: canary runs an older version, stable a newer one.
func (d *demo) coordinatedScript() []act {
	return []act{
		{
			title: "elect: two replicas of canary start, of version 1.1.0, then two of stable, of 1.2.0", revision: "canary",
			course:  namedFirst,
			expect:  "the coordinator names one of canary, which keeps leading: the default revision goes before the newer version",
			disturb: func(context.Context) (time.Time, error) { return d.installed, nil },
		},
		{
			title: "flip the default revision to stable, the newer one", revision: "stable",
			course: preferred,
			expect: "the coordinator prefers stable; canary ends its work and writes stable in, and no lease lapses",
			disturb: func(ctx context.Context) (time.Time, error) {
				at := time.Now()
				return at, d.makeDefault(ctx, "stable")
			},
		},
		{
			title: "stop the leader gracefully (kubectl delete pod)", revision: "stable", disturb: d.deletePod,
			course: releasedAndNamed,
			expect: "it ends its work and releases the lock, and the coordinator names another at once",
		},
		{
			title: "lose the coordinator for good (SIGKILL, and its pod deleted by force), and flip the default revision to canary", revision: "canary",
			disturb: d.loseCoordinator,
			course:  preferred,
			expect:  "the leader goes on; once the coordinator's lease has run out the next one prefers canary",
		},
		{
			title: "lose the leader for good (SIGKILL, and its pod deleted by force)", revision: "canary", disturb: d.lose,
			course: namedAfterLease,
			expect: "when its lease has run out the coordinator names the other replica of canary",
		},
	}
}

// loseCoordinator ends the coordinator for good and flips the default revision. Where that one leads as well, an
// operator's order has another coordinate before.
func (d *demo) loseCoordinator(ctx context.Context) (time.Time, error) {
	leader, err := d.leader()
	if err != nil {
		return time.Time{}, err
	}
	if err := d.awaitAll(ctx); err != nil {
		return time.Time{}, err
	}
	v, _ := d.watched.now()
	coordinator := v.locks[leaderelection.Coordinator].holder
	if coordinator == leader {
		for name, p := range v.pods {
			if p.revision == "stable" && name != leader {
				coordinator = name
			}
		}
		if err := d.transfer(ctx, leaderelection.Coordinator, coordinator); err != nil {
			return time.Time{}, err
		}
	}
	d.line("%s coordinates, %s leads", coordinator, leader)
	at, err := d.losePod(ctx, coordinator)
	if err != nil {
		return time.Time{}, err
	}
	return at, d.makeDefault(ctx, "canary")
}

// transfer is electionctl's, of an election whose lock is a Lease that nobody coordinates.
func (d *demo) transfer(ctx context.Context, lock, pod string) error {
	ctx, cancel := context.WithTimeout(ctx, d.limit)
	defer cancel()
	order := admin.Operator{Requester: "the demo", Lock: &locks.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: lock}, Client: d.kube.CoordinationV1(), LockConfig: locks.ResourceLockConfig{Identity: "the-demo"},
	}}
	return order.Transfer(ctx, pod, "stable", "it is to coordinate and not to lead", time.Minute)
}

// The courses where a coordinator chooses.
var (
	namedFirst = course{claim: "nominated", record: []string{stepNamed + " " + stepLeader, stepLeader}}
	preferred  = course{
		claim: "nominated", leader: another, record: []string{stepFormer, stepNominated + " " + stepLeader, stepLeader},
		ended: "handing-over", drained: true,
	}
	releasedAndNamed = course{
		claim: "nominated", leader: another, record: []string{stepFormer, stepFree, stepNamed + " " + stepLeader, stepLeader},
		ended: "stopped", drained: true, inOrder: true,
	}
	namedAfterLease = course{
		claim: "nominated", leader: another, record: []string{stepFormer, stepNamed + " " + stepLeader, stepLeader}, lease: true,
	}
)
