// Package admin has the commands of an operator for an election. An Operator writes them to the lock object: transfer,
// step-down, pause, resume and cancel. `electionctl explain` shows an election with its commands.
//
// The electors of package k8sleaderelection execute the commands. istiod and client-go ignore them.
package admin
