// Package harness runs programs as processes and reads the pages that they serve, for tests of servers.
package harness
