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
	"time"
	"unicode/utf8"
)

// maxBundle leaves room in a ConfigMap, which may have 1 MiB, for others' keys.
const maxBundle = 1<<20 - 1<<14

// bundle is the file's last good content.
type bundle struct {
	file string
	log  *slog.Logger
	read func(file string) (string, error) // readBundle, but in tests

	mu      sync.Mutex
	content string // "" until the file was good once
	problem string // the last one reported, "" when there is none
}

// current returns the bundle in force, "" when there has been no good one yet.
func (b *bundle) current() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content
}

// refresh reads the file and reports whether the bundle in force has changed. A
// problem is logged once, not at each try.
func (b *bundle) refresh() (changed bool) {
	content, err := b.read(b.file)
	b.mu.Lock()
	defer b.mu.Unlock()
	if err != nil {
		if b.problem != err.Error() {
			b.problem = err.Error()
			b.log.Error("CA bundle is not usable, the last good one stays in force", "file", b.file, "inForce", b.content != "", "err", err)
		}
		return false
	}
	if b.problem != "" {
		b.problem = ""
		b.log.Info("CA bundle is usable again", "file", b.file)
	}
	if content == b.content || b.changing(content) {
		return false
	}
	b.log.Info("CA bundle", "file", b.file, "bytes", len(content), "first", b.content == "")
	b.content = content
	return true
}

// changing reports whether the file says something else by now. One that is overwritten in place may be read in two parts, from
// before and from after, which together look like a certificate: the next look decides.
func (b *bundle) changing(content string) bool {
	again, err := b.read(b.file)
	return err != nil || again != content
}

// follow refreshes until ctx ends, and calls changed after each change.
func (b *bundle) follow(ctx context.Context, every time.Duration, changed func()) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if b.refresh() {
				changed()
			}
		}
	}
}

// readBundle reads a file, following symlinks, and refuses what is no bundle.
func readBundle(file string) (string, error) {
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return "", fmt.Errorf("it is no regular file but %v", info.Mode().Type())
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

// checkBundle makes sure that each block is a certificate. A private key that was put
// there by mistake must not reach every namespace, nor a file that is half written.
func checkBundle(content []byte) error {
	switch {
	case len(bytes.TrimSpace(content)) == 0:
		return errors.New("it is empty")
	case len(content) > maxBundle:
		return fmt.Errorf("it is longer than %d bytes, which is what fits a ConfigMap", maxBundle)
	case !utf8.Valid(content):
		return errors.New("it is no UTF-8 text")
	}
	n := 0
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		n++
		if block.Type != "CERTIFICATE" {
			return fmt.Errorf("block %d is a %s, only certificates belong into it", n, block.Type)
		}
		if _, err := x509.ParseCertificate(block.Bytes); err != nil {
			return fmt.Errorf("certificate %d: %w", n, err)
		}
	}
	if begun := bytes.Count(content, []byte("-----BEGIN ")); n == 0 || begun != n {
		return fmt.Errorf("it has %d whole PEM blocks of %d begun: is it cut off, or no PEM?", n, begun)
	}
	return nil
}
