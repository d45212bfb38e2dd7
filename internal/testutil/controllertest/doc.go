// Package controllertest runs controllers with the in-memory API server.
package controllertest
