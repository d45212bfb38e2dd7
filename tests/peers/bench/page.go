package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
)

// section is a generated part of the page.
var section = regexp.MustCompile(`(?s)<!-- generated: ([a-z]+)[^\n]*-->\n.*?<!-- end -->`)

// Page replaces the generated parts of the page.
func (r *Results) Page(text string) (string, error) {
	content := map[string]string{
		"times": r.Times(), "requests": r.Requests(), "scale": r.Scale(), "herd": r.Herd(), "provenance": r.Provenance(),
	}
	found := map[string]bool{}
	text = section.ReplaceAllStringFunc(text, func(old string) string {
		name := section.FindStringSubmatch(old)[1]
		found[name] = true
		return fmt.Sprintf("<!-- generated: %s, of results %s -->\n\n%s\n<!-- end -->", name, r.Sum(), content[name])
	})
	for name := range content {
		if !found[name] {
			return "", fmt.Errorf("the page has no generated part %q", name)
		}
	}
	return text, nil
}

// Sum returns a checksum of the results.
func (r *Results) Sum() string {
	raw, err := json.Marshal(r)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%x", sha256.Sum256(append(raw, '\n')))[:16]
}
