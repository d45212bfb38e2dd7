package namespace

import (
	"bytes"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/certs"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

func block(kind string, content []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}))
}

func TestCheckBundle(t *testing.T) {
	one, two := string(certs.CA(t)), string(certs.CA(t))
	for name, test := range map[string]struct {
		content string
		want    string // "" when the bundle is good
	}{
		"one":                {one, ""},
		"two":                {one + two, ""},
		"with comments":      {"# ours\n" + one + "# theirs\n" + two + "\n", ""},
		"empty":              {"", "empty"},
		"blank":              {" \n\t\n", "empty"},
		"not PEM":            {"hello", "not PEM"},
		"truncated":          {one + two[:len(two)/2], "truncated"},
		"truncated at first": {one[:len(one)/2], "truncated"},
		"broken in between":  {one[:len(one)/2] + two, "truncated"},
		"private key":        {one + block("EC PRIVATE KEY", []byte("x")), "EC PRIVATE KEY"},
		"not a certificate":  {block("CERTIFICATE", []byte("x")), "certificate 1"},
		"not UTF-8":          {"\xff" + one, "UTF-8"},
		"maximum length":     {one + strings.Repeat("#", maxBundle-len(one)), ""},
		"too long":           {strings.Repeat(one, maxBundle/len(one)+1), "exceeds"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkBundle([]byte(test.content))
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error is %v, want %q", err, test.want)
			}
		})
	}
}

func FuzzCheckBundle(f *testing.F) {
	f.Add([]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		if checkBundle(content) == nil && !bytes.Contains(content, []byte("CERTIFICATE")) {
			t.Errorf("%q passed", content)
		}
	})
}

func TestBundle_KeepsLastValid(t *testing.T) {
	var out bytes.Buffer
	file := filepath.Join(t.TempDir(), "ca.pem")
	b := &bundle{file: file, log: slog.New(slog.NewTextHandler(&out, nil)), read: readBundle}
	one, two := string(certs.CA(t)), string(certs.CA(t))
	write := func(content string) func() {
		return func() {
			harness.Must(t, os.WriteFile(file, []byte(content), 0o600))
		}
	}
	remove := func() {
		harness.Must(t, os.RemoveAll(file))
	}
	for i, step := range []struct {
		do      func()
		changed bool
		current string
		errors  int
	}{
		{remove, false, "", 1},
		{remove, false, "", 1},
		{write(one), true, one, 1},
		{write(one), false, one, 1},
		{write(""), false, one, 2},
		{write("x"), false, one, 3},
		{write("x"), false, one, 3},
		{remove, false, one, 4},
		{func() { _ = os.Mkdir(file, 0o700) }, false, one, 5},
		{remove, false, one, 6},
		{write(two), true, two, 6},
	} {
		step.do()
		if changed := b.refresh(); changed != step.changed || b.current() != step.current {
			t.Errorf("step %d: changed %v", i, changed)
		}
		if got := strings.Count(out.String(), "level=ERROR"); got != step.errors {
			t.Fatalf("step %d: %d errors logged, want %d:\n%s", i, got, step.errors, &out)
		}
	}
	if got := strings.Count(out.String(), "valid again"); got != 2 {
		t.Errorf("logged %d times that it is valid again:\n%s", got, &out)
	}
}

// Reading a pipe would block.
func TestReadBundle_Errors(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	harness.Must(t, syscall.Mkfifo(pipe, 0o600))
	for path, want := range map[string]string{pipe: "not a regular file", folder: "not a regular file", filepath.Join(folder, "missing"): "no such file"} {
		if content, err := readBundle(path); err == nil || !strings.Contains(err.Error(), want) || content != "" {
			t.Errorf("%s: %q, %v; want %q", path, content, err, want)
		}
	}
	if _, err := readBundle("/proc/self/mem"); err == nil || !strings.Contains(err.Error(), "input/output error") {
		t.Errorf("unreadable file: %v", err)
	}
	open := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		harness.Must(t, err)
		return len(all)
	}
	for before, n := open(), 0; n < 100; n++ {
		if _, _ = readBundle("/proc/self/stat"); open() > before+50 {
			t.Fatalf("%d files are open, %d before", open(), before)
		}
	}
	long := filepath.Join(folder, "long")
	harness.Must(t, os.WriteFile(long, bytes.Repeat([]byte("x"), maxBundle+10), 0o600))
	if content, err := readBundle(long); err == nil || len(content) != maxBundle+1 {
		t.Errorf("%d bytes were read, %v", len(content), err)
	}
}

// A mix of old and new content that looks valid is never used.
func TestBundle_ReadDuringOverwrite(t *testing.T) {
	reads := []string{"old", "old", "old", "ol|new", "new", "new", "new", "new", "gone"}
	b := &bundle{log: slog.New(slog.DiscardHandler), read: func(string) (string, error) {
		now := reads[0]
		if reads = reads[1:]; now == "gone" {
			return "", errors.New(now)
		}
		return now, nil
	}}
	for i, want := range []struct {
		changed bool
		content string
		left    int
	}{{true, "old", 7}, {false, "old", 6}, {false, "old", 4}, {true, "new", 2}, {false, "new", 1}, {false, "new", 0}} {
		if changed := b.refresh(); changed != want.changed || b.current() != want.content || len(reads) != want.left {
			t.Errorf("refresh %d: changed %v, current %q, %d reads left", i+1, changed, b.current(), len(reads))
		}
	}
	reads = []string{"newer", "gone"}
	if b.refresh() || b.current() != "new" {
		t.Errorf("current bundle is %q", b.current())
	}
}
