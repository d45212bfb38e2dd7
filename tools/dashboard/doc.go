// Command dashboard renders the dashboard of the chart pilot as JSON for Grafana. panels.go has its panels.
package main
