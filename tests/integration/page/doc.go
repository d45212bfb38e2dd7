// Package page has the tests of the elections page in Chromium: what people see of real elections on a real API server, and
// what it costs. Without Chromium they are skipped, but in CI.
package page
