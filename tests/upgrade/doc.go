// Package upgrade upgrades a control plane from one revision to another and back under load. The audit logs of the API
// servers are judged by package verdict. See docs/upgrade.md for the figures.
package upgrade
