// Package harness is what tests of servers share wherever they lie: a program as a process, the pages that it
// serves, and what tests within this folder have in tests/internal.
package harness
