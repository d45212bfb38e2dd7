// Package workload generates load during an upgrade: it creates, edits and deletes objects that the controllers reconcile,
// and sends requests through Gateways.
package workload
