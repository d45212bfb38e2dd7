// Package loopback allocates blocks of loopback addresses, so that clusters and nodes of concurrent programs do not
// share addresses. It requires Linux, which accepts all of 127.0.0.0/8 without configuration.
package loopback
