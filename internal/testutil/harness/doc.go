// Package harness ends a test after an error, waits for conditions, keeps logs, runs programs as processes, and reads the pages that they serve.
package harness
