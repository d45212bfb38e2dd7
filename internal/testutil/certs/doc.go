// Package certs makes certificates for tests.
package certs
