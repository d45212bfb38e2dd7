package readme

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are what a reader may follow links between.
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

// Nobody has to know that a page is there to find it.
func TestTheIndexListsEachPage(t *testing.T) {
	index := read(t, filepath.Join("docs", "README.md"))
	for _, name := range pages(t) {
		if dir, base := filepath.Split(name); dir != "" && base != "README.md" && !strings.Contains(index, "]("+base+")") {
			t.Errorf("docs/README.md does not list %s", name)
		}
	}
}

var (
	link    = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	diagram = regexp.MustCompile("(?s)```mermaid\n(.*?)```")
)

// anchor is what a heading is reached by, as GitHub makes it.
func anchor(heading string) string {
	heading = strings.ToLower(heading)
	heading = regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(heading, "")
	return strings.ReplaceAll(heading, " ", "-")
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, name := range pages(t) {
		for _, found := range link.FindAllStringSubmatch(read(t, name), -1) {
			target, fragment, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") {
				continue
			}
			page := name
			if target != "" {
				page = filepath.Join(filepath.Dir(name), target)
			}
			if matches, err := filepath.Glob(filepath.Join(root, page)); err != nil || len(matches) == 0 {
				t.Errorf("%s links to %s, which is not there", name, found[1])
				continue
			}
			if fragment == "" {
				continue
			}
			there := false
			for _, h := range heading.FindAllStringSubmatch(read(t, page), -1) {
				there = there || anchor(h[1]) == fragment
			}
			if !there {
				t.Errorf("%s links to %s, and %s has no such heading", name, found[1], page)
			}
		}
	}
}

// In a sequence diagram a semicolon ends a statement, in a note's text too: the page shows
// an error then in place of the picture.
func TestDiagramsHaveNoSemicolons(t *testing.T) {
	some := false
	for _, name := range pages(t) {
		for _, found := range diagram.FindAllStringSubmatch(read(t, name), -1) {
			some = true
			if strings.Contains(found[1], ";") {
				t.Errorf("%s: a diagram has a semicolon in it", name)
			}
		}
	}
	if !some {
		t.Error("no page has a diagram")
	}
}
