// Package k8sleaderelection implements leader election with a lock in Kubernetes. It replaces the package leaderelection of
// client-go and can be used alone. A LeaderElector is one candidate of one election. docs/how-it-works.md describes the
// protocol, docs/safety.md its limits.
//
// Quick start, without revisions:
//
//	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG")) // in a Pod: its service account
//	if err != nil {
//		log.Fatal(err)
//	}
//	clientset := kubernetes.NewForConfigOrDie(config)
//	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
//	defer stop()
//	k8sleaderelection.RunOrDie(ctx, k8sleaderelection.LeaderElectionConfig{
//		Lock: &k8sresourcelock.LeaseLock{
//			LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "my-controller"},
//			Client:     clientset.CoordinationV1(),
//			LockConfig: k8sresourcelock.ResourceLockConfig{Identity: os.Getenv("POD_NAME")},
//		},
//		LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second, RetryPeriod: 2 * time.Second,
//		ReleaseOnCancel: true,
//		Callbacks: k8sleaderelection.LeaderCallbacks{
//			OnStartedLeading: func(ctx context.Context) { runController(ctx) }, // returns when ctx ends
//		},
//	})
//
// It needs this Role:
//
//	apiVersion: rbac.authorization.k8s.io/v1
//	kind: Role
//	metadata: {namespace: default, name: my-controller}
//	rules:
//	- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [create]}
//	- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, update, watch], resourceNames: [my-controller]}
//
// Terms:
//
//   - The holder is the identity in the record of the lock. A leader is a holder whose run functions may run. A follower is
//     a candidate that is not the leader. To campaign is to acquire or request the lock as soon as the rules allow.
//   - A candidate of another implementation, such as istiod or client-go, is called another elector or a peer.
//   - A term is an uninterrupted period of leadership. Its token is the resourceVersion of the leader's first write.
//   - The validity is how long a leader may act: RenewDeadline from when its last acknowledged write was sent.
//   - The key is the rank that a candidate writes into the lock: its revision, with the prefix "^" if the candidate runs
//     outside the cluster of the lock. See Outranks.
//   - To preempt is to overwrite a live holder of lower rank. In a handover, the leader writes the challenger as holder.
//     A candidate that another process wrote as holder is nominated. It acts after its own first write.
//   - The marker is an annotation on the lock. It shows that the leader acts. Other electors write none.
//   - A hold is an annotation of an operator that keeps the holder (see package admin).
//   - An unfit process should not lead if another can (see LeaderElectionConfig.FitnessCheck).
//   - To settle is to hold the lock without acting, while a previous leader may still act.
//   - To drain is to wait until cancelled run functions have returned.
//
// Invariants: run functions start when an own write was acknowledged, and their contexts end with the validity. The lock is
// released after they have returned. A release never changes the record of another holder. A follower acts on watch events
// and at the exact expiry of the lease. It polls without a watch, after two to three RetryPeriods without a watch event
// for a held lock, and while its request is pending.
//
//	following → settling → leading → draining → releasing → following or done
//
// The decisions are a pure function in internal/core. This package is the loop around it, in the goroutine of Run or
// Campaign. Watch events, replies, run functions and a timer are its inputs. For each input the loop reads the clocks, calls
// Step, and applies the action: first the gate, then the run functions, at most one API call, and the timer. It never
// waits for the network or for code of the caller, except a Gate and a Witness: other goroutines call that.
package k8sleaderelection
