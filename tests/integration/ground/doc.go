// Package ground tests on a real API server what elections stand on: the watchers of the
// default revision and of tags, the namespace controller, and the server around them.
package ground
