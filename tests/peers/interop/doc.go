// Package interop runs candidates of incumbent, istiod and client-go in one election on a real API server, through every kind of leader change and in both roles. They use the real packages. Run it with `make interop`.
//
// It checks in each scenario:
//   - Two incumbent candidates never lead concurrently.
//   - An incumbent candidate starts only after the other elector released the lock or its lease expired.
//   - Each elector reads every record of the others, field by field.
//   - Foreign labels, annotations and data of the lock object are preserved.
package interop
