// Package upgrade repeats tests/upgrade with istiod's elector in one revision or in both.
package upgrade
