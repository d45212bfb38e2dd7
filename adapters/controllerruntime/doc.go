// Package controllerruntime runs the controllers of a controller-runtime program in the terms of an election.
//
// A Manager has the caches, webhooks, metrics and health probes of the process, as manager.Manager does. Controllers are
// not added to it: a function given to InTerms creates them at the start of each term, on a manager of that term. The lock is
// released after each of its runnables has returned.
//
//	mgr, err := controllerruntime.NewManager(config, leaderelection.Config{
//		Namespace: "operators", ElectionID: "my-operator", Identity: podName,
//	}, manager.Options{Scheme: scheme})
//	mgr.Warm(&appsv1.Deployment{})
//	mgr.InTerms(func(ctx context.Context, term manager.Manager) error {
//		return (&Reconciler{Client: term.GetClient()}).SetupWithManager(term)
//	})
//	err = mgr.Start(ctx)
//
// Invariants:
//
//   - A runnable of a term runs only in that term. Its context ends with the term.
//   - Writes of the manager's client, and of clients created from its GetConfig and GetHTTPClient, fail outside the term
//     with gate.ErrNotLeader. Reads, caches and Events have no gate.
//   - Caches exist once per process and stay filled between terms. A term removes the handlers that it added to them.
//   - An error of a setup or of a runnable ends Start, after the runnables have returned and the lock was released. A lost
//     term does not.
//
// docs/migration-controller-runtime.md has the changes of an existing program.
package controllerruntime
