// Package fencecommand is the command `fence` of the server and of electionctl. It renders, installs, verifies and removes
// the policies of a fence.
package fencecommand
