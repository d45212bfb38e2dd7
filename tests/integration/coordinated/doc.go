// Package coordinated tests coordinated elections with the API server: permissions, requests, the fence, a mix of electors, and switching
// the feature. Package coordination tests the decisions of the coordinator.
package coordinated
