// Package migration checks that installations which share a namespace use the same type of lock.
//
// An installation that uses Leases and an installation that uses ConfigMaps do not see each other's locks. Each
// elects a leader of its own, so two leaders are active. LockTypeCheck detects this.
package migration
