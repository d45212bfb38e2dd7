// Package server measures pilot as a process of its own, with thousands of objects, on an API server and etcd that are real:
// how long the first reconciling takes, with how many writes, how soon a follower that takes over writes, and how
// much memory it needs. See docs/controllers.md for the figures; make bench-server measures anew.
//
// A test has it lead over what is wrong.
//
// All is counted by the API server's audit log: who wrote what, when it came, and when it was answered. A process
// is elected by its first write to a lock; a follower sends none.
package server
