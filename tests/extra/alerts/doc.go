// Package alerts tests the alerts and the dashboard of the chart pilot. Each expression parses, uses metrics that a real
// control plane exports, and fires only in the intended situation.
package alerts
