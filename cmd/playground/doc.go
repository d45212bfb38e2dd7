// Command playground runs a control plane of two revisions on a real API server on this machine. Pods are local processes.
//
//	playground run      prints commands to try, and the changes of its elections (electionctl watch) until Ctrl-C
//	playground demo     plays a script of flips and failures, and checks each step
//	playground upgrade  upgrades from one revision to the other and back, under load
//
// demo and upgrade are judged by the audit log of the API server (packages internal/audit and tests/upgrade/verdict).
package main
