package namespace

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"unicode/utf8"

	"incumbent.dev/incumbent/internal/apirequest"
)

// maxBundle is below the ConfigMap limit of 1 MiB, so that other keys fit.
const maxBundle = 1<<20 - 1<<14

// bundle holds the last valid content of the bundle file.
type bundle struct {
	file string
	log  *slog.Logger
	read func(file string) (string, error) // replaced in tests

	mu      sync.Mutex
	content string // "" until the file was valid
	problem string // last logged error, or ""
}

// current returns the last valid bundle, or "" if there was none.
func (b *bundle) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content
}

// refresh reads the file and reports whether the current bundle changed. Each error is logged
// once.
func (b *bundle) refresh() (changed bool) {
	content, err := b.read(b.file)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.problem != err.Error() {
			b.problem = err.Error()
			b.log.Error("CA bundle is invalid; keeping the last valid bundle", "file", b.file, "hasValidBundle", b.content != "", "err", err)
		}
		return false
	}
	if b.problem != "" {
		b.problem = ""
		b.log.Info("CA bundle is valid again", "file", b.file)
	}
	if content == b.content || b.beingWritten(content) {
		return false
	}
	b.log.Info("CA bundle loaded", "file", b.file, "bytes", len(content), "first", b.content == "")
	b.content = content
	return true
}

// beingWritten reports whether a second read returns other content. A read during an overwrite
// can mix old and new content into a valid certificate. The next refresh decides then.
func (b *bundle) beingWritten(content string) bool {
	again, err := b.read(b.file)
	return err != nil || again != content
}

// follow refreshes the bundle until ctx is done and calls changed after each change.
func (b *bundle) follow(ctx context.Context, changed func()) {
	for apirequest.Pause(ctx, bundleInterval) == nil {
		if b.refresh() {
			changed()
		}
	}
}

// readBundle reads and validates a file. It follows symlinks.
func readBundle(file string) (string, error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("not a regular file: %v", info.Mode().Type())
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxBundle+1))
	if err != nil {
		return "", err
	}
	return string(content), checkBundle(content)
}

// checkBundle returns an error unless each block is a certificate. A private key or a partly
// written file must not reach every namespace.
func checkBundle(content []byte) error {
	switch {
	case len(bytes.TrimSpace(content)) == 0:
		return errors.New("file is empty")
	case len(content) > maxBundle:
		return fmt.Errorf("file exceeds %d bytes, the limit for a ConfigMap", maxBundle)
	case !utf8.Valid(content):
		return errors.New("file is not UTF-8 text")
	}
	n := 0
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		n++
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("block %d is a %s; only certificates are allowed", n, block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("certificate %d: %w", n, err)
		}
	}
	if started := bytes.Count(content, []byte("-----BEGIN ")); n == 0 || started != n {
		return fmt.Errorf("file has %d complete PEM blocks of %d started: it may be truncated or not PEM", n, started)
	}
	return nil
}
