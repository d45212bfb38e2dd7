// Package upgrade does what tests/upgrade does, with istiod's elector in the place of ours in one revision, or in both.
package upgrade
