// Package page tests the elections page in Chromium and measures its cost. Its elections are plain values: package bootstrap
// tests the page of a server with real elections. Only the picture of an outage shows a real one. Without Chromium the tests are skipped, except in CI.
//
// To measure the page: go test -run '^$' -bench . -benchtime 1x ./page
package page
