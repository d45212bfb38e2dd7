// Package rollout upgrades a control plane revision by revision, on its own cluster, with real processes, real tokens and
// the Helm charts. Package workload adds load, and package verdict judges the audit logs of the API servers.
//
//	r, err := rollout.Start(ctx, rollout.Options{Pilot: …, Dataplane: …, Helm: …, Charts: …})
//	defer r.End()
//	err = r.Install(ctx, rollout.Release{Revision: "stable", Replicas: 3})
//	err = r.StartLoad(ctx)
//	…
//	v, err := r.AwaitWanted(ctx)
package rollout
