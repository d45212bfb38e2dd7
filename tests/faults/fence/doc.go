// Package fence tests the fence on a real API server: permissions for guarded objects,
// permissions for locks, and the effect of locks, policies, pods and tokens that come
// and go. Writers have tokens bound to Pods of their own.
package fence
