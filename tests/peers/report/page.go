package report

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
)

// The page carries what is generated between such comments, one pair per table.
var section = regexp.MustCompile(`(?s)<!-- generated: ([a-z]+)[^\n]*-->\n.*?<!-- end -->`)

// Page replaces the generated parts of a page by those of these results.
func (r *Results) Page(text string) (string, error) {
	var err error
	found := map[string]bool{}
	text = section.ReplaceAllStringFunc(text, func(old string) string {
		name := section.FindStringSubmatch(old)[1]
		found[name] = true
		content := ""
		switch name {
		case "goals":
			content = r.GoalTable() + "\n" + r.Provenance()
		default:
			content = r.Tables(name)
		}
		return fmt.Sprintf("<!-- generated: %s, of results %s -->\n\n%s\n<!-- end -->", name, r.Sum(), content)
	})
	for _, name := range append([]string{"goals"}, Scenarios...) {
		if !found[name] {
			err = fmt.Errorf("there is no place for the generated part %q", name)
		}
	}
	return text, err
}

// Sum tells results apart.
func (r *Results) Sum() string {
	raw, err := json.Marshal(r)
	if err != nil {
		return "unknown"
	}
	return fmt.Sprintf("%x", sha256.Sum256(append(raw, '\n')))[:16]
}
