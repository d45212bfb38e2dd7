package bootstrap

import (
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	root        = "../.."
	handbook    = root + "/docs/troubleshooting.md"
	metricsPage = root + "/docs/metrics.md"
)

var (
	quoted = regexp.MustCompile("`([^`]+)`")
	verb   = regexp.MustCompile(`%[a-z]`)
	event  = regexp.MustCompile(`(?:r\.event|r\.warn|s\.event)\((?:now, corev1\.EventType[A-Za-z]+, )?("[^"]+")|EventTypeWarning, "LeaderElection",\s*("[^"]+")`)
	reason = regexp.MustCompile(`\tReason[A-Z][A-Za-z]* += "([A-Za-z]+)"`)
	fqName = regexp.MustCompile(`fqName: "([^"]+)"`)
)

// named are the words in code quotes in the first column of a section's table.
func named(t *testing.T, section string) (words []string) {
	t.Helper()
	_, rest, found := strings.Cut(readFile(t, handbook), "## "+section+"\n")
	if !found {
		t.Fatalf("%s has no section %s", handbook, section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	for line := range strings.Lines(rest) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, word := range quoted.FindAllStringSubmatch(cells[1], -1) {
				words = append(words, word[1])
			}
		}
	}
	if len(words) == 0 {
		t.Fatalf("section %s has no table", section)
	}
	return words
}

// sources is the text of all that is no test.
func sources(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, folder := range []string{"pilot", "pkg", "cmd", "internal"} {
		tree := os.DirFS(root + "/" + folder)
		err := fs.WalkDir(tree, ".", func(name string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			content, err := fs.ReadFile(tree, name)
			all.Write(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

func TestTroubleshootingNamesLogLinesThatExist(t *testing.T) {
	code := sources(t)
	for _, line := range named(t, "Log lines") {
		if !strings.Contains(code, `"`+line) {
			t.Errorf("no line %q is logged", line)
		}
	}
}

func TestTroubleshootingNamesEveryEvent(t *testing.T) {
	var written []string
	for _, found := range event.FindAllStringSubmatch(sources(t), -1) {
		text, err := strconv.Unquote(found[1] + found[2])
		if err != nil {
			t.Fatal(err)
		}
		written = append(written, verb.ReplaceAllString(text, "…"))
	}
	if len(written) < 8 {
		t.Fatalf("only %q are found in the code", written)
	}
	same(t, "Events", named(t, "Events"), written)
}

func TestTroubleshootingNamesEveryReasonOfAnEvent(t *testing.T) {
	var written []string
	for _, found := range reason.FindAllStringSubmatch(sources(t), -1) {
		if !slices.Contains(written, found[1]) {
			written = append(written, found[1])
		}
	}
	if len(written) < 8 {
		t.Fatalf("only %q are found in the code", written)
	}
	same(t, "Events on what controllers look at", named(t, "Events on what controllers look at"), written)
}

func TestTroubleshootingNamesEveryMetric(t *testing.T) {
	config := goodConfig()
	config.Fence = true
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc, 1000)
	s.metrics.registry.Describe(described)
	close(described)
	page := readFile(t, metricsPage)
	var exported []string
	for desc := range described {
		name := fqName.FindStringSubmatch(desc.String())[1]
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		exported = append(exported, name)
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("%s does not list %s", metricsPage, name)
		}
	}
	same(t, "Metrics", named(t, "Metrics"), exported)
}

// same wants a section to name what there is, all of it and no more.
func same(t *testing.T, section string, listed, there []string) {
	t.Helper()
	for _, word := range listed {
		if !slices.Contains(there, word) {
			t.Errorf("%s: %q is listed, and the code has none", section, word)
		}
	}
	for _, word := range there {
		if !slices.Contains(listed, word) {
			t.Errorf("%s: %q is in the code, and not listed", section, word)
		}
	}
}
