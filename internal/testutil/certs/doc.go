// Package certs creates certificates for tests.
package certs
