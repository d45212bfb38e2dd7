// Package logs provides a log that tests read while it is written.
package logs
