// Package relay stands between a client and a server and does to their TCP connections
// what networks do: it silences them, lets one direction through, slows them down, resets
// them, or cuts them in the middle of an answer. What becomes of connections that are there
// is said apart from what becomes of those that come.
package relay
