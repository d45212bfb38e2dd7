// Package servers runs servers of the control plane in a test process, with the permissions of the chart.
package servers
