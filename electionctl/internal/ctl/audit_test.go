package ctl

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/auditlog"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

// execute runs the command. It returns the output, the error and the exit code.
func execute(t *testing.T, input string, args ...string) (out string, err error, code int) {
	t.Helper()
	var buffer bytes.Buffer
	cmd := (&Program{}).Command()
	cmd.SetArgs(append([]string{"audit"}, args...))
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(&buffer)
	cmd.SetErr(&buffer)
	err = cmd.ExecuteContext(t.Context())
	if c, ok := errors.AsType[coded](err); ok {
		code = c.code
	}
	return buffer.String(), err, code
}

const late = "lock stable-1 stable-1 1; bundle stable-1 shop one; lock stable-1 canary-1 2; lock canary-1 canary-1 2; " +
	"bundle canary-1 shop two; bundle stable-1 shop three"

func played(t *testing.T, play string) string {
	s := auditlog.New(t)
	s.Play(play)
	return s.Lines.String()
}

func TestAudit_Text(t *testing.T) {
	out, err, code := execute(t, played(t, late), "-", "--guard", "bundles=configmaps:bundle")
	const want = `1 file, 6 events, 6 writes.
From 2026-01-02T12:00:01.000Z to 2026-01-02T12:00:06.000Z (5s).

LOCKS
  istio-system/bundles (leases)
    2 terms, 1 change of the leader; at the end leader canary-1
    longest time without a leader 1s, until 2026-01-02T12:00:04.000Z
    3 writes judged, 1 without the lock

FINDINGS: 1
  1. stable-1 made 1 write after it lost istio-system/bundles
     the term was handed over; last write 3s after the loss
     overlap 2s with canary-1, which also wrote
     from 2026-01-02T12:00:06.000Z to 12:00:06.000
     configmaps shop/bundle
`
	if out != want || code != 1 || err.Error() != "1 finding in the audit log" {
		t.Errorf("exit code %d, %v:\n%s", code, err, out)
	}
	for line := range strings.Lines(out) {
		if len(line) > width+1 {
			t.Errorf("line is too long: %q", line)
		}
	}
}

func TestAudit_JSON(t *testing.T) {
	out, _, code := execute(t, played(t, late), "-", "-o", "json", "--guard", "bundles=configmaps:bundle")
	var report struct {
		Findings []struct {
			Rule, Pod, Next string
			Overlap         float64 `json:"overlapSeconds"`
		}
		Locks []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 1 {
		t.Fatal(err, code)
	}
	if f := report.Findings; len(f) != 1 || f[0].Rule != "interleaved" || f[0].Pod != "stable-1" || f[0].Next != "canary-1" || f[0].Overlap != 2 || report.Locks[0].Name != "bundles" {
		t.Errorf("%+v", report)
	}
}

// Bad input never leads to an acquittal.
func TestAudit_ExitCodes(t *testing.T) {
	good := played(t, "lock stable-1 stable-1 1; bundle stable-1 shop one; lock stable-1 stable-1 1; bundle stable-1 shop two")
	convicting := strings.SplitAfter(played(t, late), "\n")
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write([]byte(good))
	_ = zip.Close()
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		harness.Must(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	log := file("audit.log", good)
	empty := file("empty.log", "")
	older := file("audit-1.log", strings.Join(convicting[:3], ""))
	newer := file("audit-2.log", strings.Join(convicting[3:], ""))
	truncated := file("audit.log.gz", packed.String()[:packed.Len()-9])
	noData := file("no-data.log.gz", packed.String()[:12])
	cut := func(name, text string) string {
		var packed bytes.Buffer
		zip := gzip.NewWriter(&packed)
		_, _ = zip.Write([]byte(text))
		_ = zip.Close()
		return file(name, packed.String()[:packed.Len()-9])
	}
	// The next leader wrote before and after the finding, so no lost line can explain it.
	proved := played(t, late+"; lock canary-1 canary-1 2")
	const guard = "--guard=bundles=configmaps:bundle"
	for name, c := range map[string]struct {
		input string
		args  []string
		code  int
		want  string
	}{
		"acquitted":               {good, []string{"-"}, 0, ""},
		"file":                    {"", []string{log}, 0, ""},
		"file and an empty file":  {"", []string{empty, log}, 2, empty + " has no event"},
		"no file":                 {"", nil, 2, "missing argument FILE"},
		"missing file":            {"", []string{"/no/such"}, 2, "/no/such: no such file"},
		"directory":               {"", []string{folder}, 2, "is a directory"},
		"empty file":              {"", []string{empty}, 2, empty + " has no event"},
		"no data on stdin":        {"", []string{"-"}, 2, "standard input has no event"},
		"not JSON":                {"hello\n", []string{"-"}, 2, "standard input:1: not a JSON event"},
		"truncated gzip":          {"", []string{truncated}, 2, "the file is truncated: " + truncated},
		"gzip without data":       {"", []string{noData}, 2, "the file is truncated: " + noData},
		"truncated and complete":  {"", []string{truncated, log}, 2, "the file is truncated"},
		"rotated, in order":       {"", []string{guard, older, newer}, 1, "1 finding"},
		"rotated, out of order":   {"", []string{guard, newer, older}, 1, "1 finding"},
		"rotated, without oldest": {"", []string{guard, newer}, 0, ""},
		"findings, truncated":     {"", []string{guard, file("late.log", proved), cut("late.log.gz", proved)}, 1, "1 finding"},
		"finding by a lost line":  {"", []string{guard, newer, older, cut("late-1.log.gz", played(t, late))}, 2, "unless a missing line explains them"},
		"locks only":              {played(t, "lock stable-1 stable-1 1"), []string{"-"}, 2, "no other write of their candidates"},
		"other lock":              {good, []string{"-", "--lock", "x"}, 2, "the log has no lock x"},
		"invalid guard":           {good, []string{"-", "--guard", "x"}, 2, `--guard: "x" is not LOCK=RESOURCE`},
		"invalid format":          {good, []string{"-", "-o", "yaml"}, 2, "--output"},
		"invalid window":          {good, []string{"-", "--window", "0s"}, 2, "--window must be positive"},
		"policy with file":        {good, []string{"--policy", "x"}, 2, "--policy reads no file"},
	} {
		_, err, code := execute(t, c.input, c.args...)
		if code != c.code || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: exit code %d, %v", name, code, err)
		}
	}
}

func TestBar(t *testing.T) {
	b := bar{total: 200e6, done: 50e6}
	if got := b.String(); got != "[##########..............................]  25%  50 of 200 MB" {
		t.Error(got)
	}
	b.total = 0
	if got := b.String(); got != "50 MB" {
		t.Error(got)
	}
}
