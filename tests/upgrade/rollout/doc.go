// Package rollout upgrades a control plane revision by revision, on a cluster of its own with real processes, real tokens and the
// charts, while package workload keeps it busy; package verdict judges what the API servers' audit logs say.
//
//	r, err := rollout.Start(ctx, rollout.Options{Pilot: …, Dataplane: …, Helm: …, Charts: …})
//	defer r.End(ctx)
//	err = r.Install(ctx, rollout.Release{Revision: "stable", Replicas: 3})
//	err = r.Work(ctx)
//	…
//	v, err := r.Settled(ctx)
package rollout
