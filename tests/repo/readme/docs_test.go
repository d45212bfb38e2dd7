package readme

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages returns the names of all pages.
func pages(t *testing.T) []string {
	t.Helper()
	names := []string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	docs, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	if err != nil || len(docs) == 0 {
		t.Fatal(docs, err)
	}
	for _, path := range docs {
		names = append(names, filepath.Join("docs", filepath.Base(path)))
	}
	return names
}

// TestREADME_LinksEachPage fails if the README does not link a page.
func TestREADME_LinksEachPage(t *testing.T) {
	readme := read(t, "README.md")
	for _, name := range pages(t) {
		if strings.HasPrefix(name, "docs") && !strings.Contains(readme, "]("+filepath.ToSlash(name)+")") {
			t.Errorf("README.md does not link %s", name)
		}
	}
}

// generated is a table that tests write.
var generated = regexp.MustCompile(`(?s)<!-- begin of .*?<!-- end of `)

// TestPages_Length limits the length of README, CONTRIBUTING and docs without generated tables.
func TestPages_Length(t *testing.T) {
	words := 0
	for _, name := range pages(t) {
		text := read(t, name)
		if lines := strings.Count(text, "\n"); !strings.HasPrefix(name, "docs") && lines > 120 {
			t.Errorf("%s has %d lines, want at most 120", name, lines)
		}
		if strings.HasPrefix(name, "docs") {
			words += len(word.FindAllString(generated.ReplaceAllString(text, ""), -1))
		}
	}
	if words > 18000 {
		t.Errorf("the pages in docs have %d words, want at most 18000", words)
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	word    = regexp.MustCompile(`[A-Za-z0-9][^\s|]*`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	diagram = regexp.MustCompile("(?s)```mermaid\n(.*?)```")
)

// anchor returns the anchor of a heading on GitHub.
func anchor(heading string) string {
	heading = strings.ToLower(heading)
	heading = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(heading, "")
	return strings.ReplaceAll(heading, " ", "-")
}

func TestPages_Links(t *testing.T) {
	for _, name := range pages(t) {
		for _, match := range link.FindAllStringSubmatch(read(t, name), -1) {
			target, fragment, _ := strings.Cut(match[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			page := name
			if target != "" {
				page = filepath.Join(filepath.Dir(name), target)
			}
			if matches, err := filepath.Glob(filepath.Join(root, page)); err != nil || len(matches) == 0 {
				t.Errorf("%s links to %s, which does not exist", name, match[1])
				continue
			}
			if fragment == "" {
				continue
			}
			found := false
			for _, h := range heading.FindAllStringSubmatch(read(t, page), -1) {
				found = found || anchor(h[1]) == fragment
			}
			if !found {
				t.Errorf("%s links to %s, but %s has no such heading", name, match[1], page)
			}
		}
	}
}

// In a Mermaid sequence diagram a semicolon ends a statement, even in a note, and GitHub shows an error instead of the diagram.
func TestPages_DiagramsWithoutSemicolons(t *testing.T) {
	some := false
	for _, name := range pages(t) {
		for _, found := range diagram.FindAllStringSubmatch(read(t, name), -1) {
			some = true
			if strings.Contains(found[1], ";") {
				t.Errorf("%s: a diagram contains a semicolon", name)
			}
		}
	}
	if !some {
		t.Error("no page has a diagram")
	}
}
