// Command pilot is the control-plane server: `pilot server` runs one replica of one
// revision, `pilot fence` has the API server refuse the writes of whoever does not lead,
// `pilot features` lists the environment variables that it knows, and
// `pilot version` says what was built.
package main
