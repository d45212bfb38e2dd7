// Package alerts tests the alerts and the dashboard of the chart pilot: each expression parses, names what a real control plane
// shows, and fires when it should and at no other time.
package alerts
