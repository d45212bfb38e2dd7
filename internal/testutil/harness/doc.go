// Package harness waits for conditions, keeps logs, runs programs as processes, and reads the pages that they serve.
package harness
