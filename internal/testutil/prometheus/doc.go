// Package prometheus runs Prometheus for tests of alerts.
package prometheus
