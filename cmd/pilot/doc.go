// Command pilot is the control-plane server. `pilot server` runs one replica of one revision, `pilot witness` releases the locks
// of a server that has ended, `pilot fence` makes the API server reject writes from non-leaders, `pilot features` lists the
// environment variables, and `pilot version` prints the version.
package main
