// Package ctl contains the commands of electionctl. Package inspect interprets the locks, and package admin executes changes of
// the leader.
package ctl
