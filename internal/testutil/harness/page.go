package harness

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Page returns the status and body of a page, or 0 without a complete response. It closes its connection.
func Page(t testing.TB, address, path string) (status int, text string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: Patience}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, "" // there is no address yet
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, "" // the server ended
	}
	return response.StatusCode, string(content)
}

// Metric returns the value of a sample, or "". A name without labels matches the first sample with that name.
func Metric(t testing.TB, address, sample string) string {
	t.Helper()
	_, page := Page(t, address, "/metrics")
	for line := range strings.Lines(page) {
		rest, found := strings.CutPrefix(line, sample)
		if found && (rest[0] == ' ' || rest[0] == '{') {
			return strings.TrimSpace(line[strings.LastIndexByte(line, ' '):])
		}
	}
	return ""
}
