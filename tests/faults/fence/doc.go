// Package fence holds the fence against a real API server: who may write what is guarded,
// who may change a lock, and what happens when locks, policies, pods and tokens come
// and go. Writers have tokens bound to Pods of their own.
package fence
