// Command pilot is the control-plane server: `pilot server` runs one replica of one
// revision, `pilot features` lists the environment variables that it knows, and
// `pilot version` says what was built.
package main
