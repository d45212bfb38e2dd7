// Package fencecommand is the command fence of pilot and of electionctl: what an administrator
// does about the fence. Its flags and words are the same in both.
package fencecommand
