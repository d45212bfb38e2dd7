// Command dashboard writes the dashboard of the chart pilot, as Grafana's JSON. panels.go says what is on it.
package main
