// Package alerts tests the alerts and the dashboard of the chart pilot: each expression parses and uses metrics that the server
// exports, and each alert fires only in the intended situation. Package operate loads them in a real Prometheus.
package alerts
