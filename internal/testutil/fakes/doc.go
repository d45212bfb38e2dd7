// Package fakes runs controllers without an API server.
package fakes
