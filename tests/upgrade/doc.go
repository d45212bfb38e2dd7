// Package upgrade upgrades a control plane from one revision to another and back, while objects are written and requests
// are sent, and has the API servers' audit logs judge it. See docs/upgrade.md for the figures.
package upgrade
