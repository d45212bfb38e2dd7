// Package page tests the elections page in Chromium, with real elections on a real API server, and measures its cost.
// Without Chromium the tests are skipped, except in CI.
package page
