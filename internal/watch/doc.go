// Package watch follows one object, or a small set of objects of one kind, with list and watch requests.
//
// A Follower keeps one watch open. It resumes from the last version and reports each gap, so that the caller reads the objects itself.
// Locks use it, because an elector sends its own reads. A candidate publishes
// its LeaseCandidate again after a gap. Objects is a Follower that lists its objects before each watch and keeps them. The default revision,
// tags, fences, coordinators, and the candidates of the elections page use it.
//
//	        Read, or the last version        accepted
//	pause ───────────────────────────▶ open ──────────▶ events ──▶ End
//	  ▲                                  │ 10 s limit                │
//	  └──────────────────────────────────┴───────────────────────────┘
//
// Invariants:
//
//   - The newest version counts. An event that is not newer than the known version of its object is ignored. A deletion is a version too.
//     The result of a later read applies even if it is older, because the storage may have been restored from a backup.
//   - A watch that ends early or with an error is repeated after a pause with back-off and jitter. No failure causes more requests than that.
//   - The API server ends each watch after a random time, so that watches that started together do not reconnect together.
//   - A watch that the API server does not accept in time has failed, also if the connection is open.
//
// A controller with many objects and indexes uses the informers of client-go instead: pilot/controllers/reconcile and electionctl.
package watch
