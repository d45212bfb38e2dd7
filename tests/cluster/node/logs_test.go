package node

import (
	"bytes"
	"net/url"
	"strings"
	"testing"
)

func TestLastLines(t *testing.T) {
	long := strings.Repeat("x", tailBlock)
	for _, c := range []struct {
		text  string
		lines int64
		want  string
	}{
		{"one\ntwo\nthree\n", -1, "one\ntwo\nthree\n"},
		{"one\ntwo\nthree\n", 0, ""},
		{"one\ntwo\nthree\n", 1, "three\n"},
		{"one\ntwo\nthree\n", 2, "two\nthree\n"},
		{"one\ntwo\nthree\n", 9, "one\ntwo\nthree\n"},
		{"one\ntwo", 1, "two"},
		{"one\n\n\n", 2, "\n\n"},
		{"", 3, ""},
		{"a\n" + long + "\nb\n", 2, long + "\nb\n"},
		{"a\n" + long + long + "\nb\n", 1, "b\n"},
		{long + long, 1, long + long},
	} {
		// Before it lies what another process wrote.
		before := "another's\n"
		from, err := lastLines(bytes.NewReader([]byte(before+c.text)), int64(len(before)), int64(len(before+c.text)), c.lines)
		if err != nil {
			t.Fatal(err)
		}
		if got := (before + c.text)[from:]; got != c.want {
			t.Errorf("the last %d lines of %.20q are %.20q, want %.20q", c.lines, c.text, got, c.want)
		}
	}
}

func TestLogRequestsThatCannotBeDoneAreRefused(t *testing.T) {
	good, err := parseLogRequest(url.Values{"follow": {"true"}, "previous": {"true"}, "tailLines": {"3"}, "limitBytes": {"7"}, "timestamps": {"false"}})
	if want := (logRequest{follow: true, previous: true, tail: 3, limit: 7}); err != nil || good != want {
		t.Errorf("it is %+v (%v), want %+v", good, err, want)
	}
	for key, value := range map[string]string{
		"follow": "perhaps", "tailLines": "many", "timestamps": "true", "sinceSeconds": "5", "sinceTime": "2026-01-02T03:04:05Z", "stream": "Stderr",
	} {
		if _, err := parseLogRequest(url.Values{key: {value}}); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s=%s: %v", key, value, err)
		}
	}
}
