// Command playground shows a control plane in two revisions at work on a real API
// server: `playground run` starts it and tells what happens until Ctrl-C,
// `playground demo` plays a script of flips and failures and judges each outcome.
//
// The pods are local processes that the embedded cluster runs. What a process did
// and when is read from its own log; what the election looked like, from a watch
// on the lock. Nothing is left behind when it ends.
package main
