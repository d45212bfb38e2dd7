// Package witness releases the locks of a leader whose process has ended without a release: by a panic, os.Exit, a fatal error,
// SIGKILL or the OOM killer. Followers then lead within milliseconds instead of after the lease.
//
// Silence proves nothing, but the kernel reports the end of a process. A witness is another process on the same machine:
//
//   - the parent of the candidate (Main, Supervise). It waits for the end of its child.
//   - a sidecar container in the same pod (Serve). It waits for the end of the connection: the kernel closes the socket of
//     the candidate only after all threads of its process have ended.
//
// The candidate registers each of its terms (Client), and removes the term after its release or loss. If the process
// ends with a registered term, the witness reads the lock and writes what a drained release writes. It changes only a lock that
// still has the registered holder, transitions, acquire time, UID and marker, and the write is guarded by the
// resourceVersion. So a settling holder, a nominee, and a newer process with the same identity keep their lock. A stopped or
// hanging process has not ended.
//
// A witness accepts terms of one identity (Options.Identity) from its own processes only. The parent accepts messages of its child. The
// sidecar accepts processes of its user that can open the socket, so only containers of the pod may mount its volume. It rejects a term
// that another live process has registered, and it limits the connections: at the limit, those without a term are closed.
//
// Requests that the dead process has sent may still arrive. If a fence rejects them, the witness releases the lock immediately.
// Otherwise it first waits for the grace that the candidate registered (deathGrace).
//
// Processes that the leader has started may continue. A leader that starts processes must end them with it, for example with
// a parent-death signal.
//
// A witness that is missing, dead or slow costs nothing: the lease expires as without a witness.
package witness
