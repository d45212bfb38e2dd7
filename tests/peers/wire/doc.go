// Package wire is the connection of one process to the API server, which can be cut:
// by refusal, where every connection is reset and none is made anew, or by swallowing,
// where bytes go out and nothing ever comes back, as when packets are lost. It cuts
// below TLS and HTTP/2, so that clients meet what they would meet in the field, their
// own health checks included. It counts the requests, too.
package wire
