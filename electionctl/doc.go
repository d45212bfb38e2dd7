// Command electionctl shows elections and moves them, also as kubectl election.
// docs/electionctl.md has its commands and exit codes.
package main
