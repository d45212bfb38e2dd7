// Package relay forwards TCP connections between a client and a server and disturbs them like a network: it drops bytes, passes one
// direction only, slows connections down, resets them, or cuts them in the middle of a response. Existing and new connections are
// configured separately.
package relay
