// Package wire is the connection of a process to the API server. It can refuse connections, or swallow all bytes as if
// packets were lost. It works below TLS and HTTP/2, so that health checks of clients behave as in production. It also
// counts requests.
package wire
