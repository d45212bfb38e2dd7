package bootstrap

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"incumbent.dev/incumbent/internal/testutil/golden"
	"incumbent.dev/incumbent/internal/testutil/harness"
)

const (
	root           = "../.."
	monitoringPage = root + "/docs/monitoring.md"
	tableStart     = "-run TestMonitoringPage -rewrite -->\n"
	tableEnd       = "<!-- end of metrics -->"
)

var (
	quoted      = regexp.MustCompile("`([^`]+)`")
	formatVerb  = regexp.MustCompile(`%[a-z]`)
	lockEvent   = regexp.MustCompile(`(?:r\.event|r\.termEvent|r\.warn|s\.event|lock\.RecordEvent)\((?:fmt\.Sprintf\()?(?:now, corev1\.EventType[A-Za-z]+, |r\.\w+, )?("[^"]+")|EventTypeWarning, "LeaderElection",\s*("[^"]+")`)
	eventReason = regexp.MustCompile(`\t[Rr]eason[A-Z][A-Za-z]* += "([A-Za-z]+)"`)
	description = regexp.MustCompile(`fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), .*constLabels: \{([^}]*)\}, variableLabels: \{([^}]*)\}`)
	constLabel  = regexp.MustCompile(`([a-z]+)="`)
)

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	harness.Must(t, err)
	return string(content)
}

// metricsTable renders the metrics of a server as Markdown.
func metricsTable(t *testing.T) string {
	t.Helper()
	config := goodConfig()
	config.Fence = true
	config.WitnessMode, config.WitnessSocket = WitnessSocket, "absent"
	m := mustNew(t, config, nil).metrics
	described := make(chan *prometheus.Desc, 1000)
	m.registry.Describe(described)
	close(described)
	histograms := []string{"incumbent_election_request_seconds", "incumbent_election_renew_seconds"}
	for interval := range m.durations {
		descs := make(chan *prometheus.Desc, 1)
		m.durations[interval].Describe(descs)
		histograms = append(histograms, description.FindStringSubmatch((<-descs).String())[1])
	}
	rows := map[string]string{}
	for desc := range described {
		found := description.FindStringSubmatch(desc.String())
		if found == nil {
			t.Fatalf("unexpected description %s", desc)
		}
		name := found[1]
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		help, err := strconv.Unquote(found[2])
		if err != nil || len(help) < 20 {
			t.Errorf("%s has the help %q", name, help)
		}
		kind := "gauge"
		if strings.HasSuffix(name, "_total") {
			kind = "counter"
		} else if slices.Contains(histograms, name) {
			kind = "histogram"
		}
		labels := strings.FieldsFunc(found[4], func(r rune) bool { return r == ',' || r == ' ' })
		for _, label := range constLabel.FindAllStringSubmatch(found[3], -1) {
			labels = append(labels, label[1])
		}
		slices.Sort(labels)
		rows[name] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind, strings.Join(labels, ", "), help)
	}
	table := "\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n"
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		table += rows[name]
	}
	return table + "\n"
}

func TestMonitoringPage_Metrics(t *testing.T) {
	golden.Section(t, monitoringPage, tableStart, tableEnd, metricsTable(t))
}

// sources returns the text of all Go files except tests.
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
		harness.Must(t, err)
	}
	return all.String()
}

// firstColumn returns the words in code quotes in the first column of the table after a header.
func firstColumn(t *testing.T, header string) (words []string) {
	t.Helper()
	_, table, found := strings.Cut(readFile(t, monitoringPage), "\n| "+header+" | action |\n")
	if !found {
		t.Fatalf("no table with the header %s", header)
	}
	table, _, _ = strings.Cut(table, "\n\n")
	for line := range strings.Lines(table) {
		for _, word := range quoted.FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			words = append(words, word[1])
		}
	}
	slices.Sort(words)
	return words
}

func TestMonitoringPage_LogLines(t *testing.T) {
	code := sources(t)
	for _, line := range firstColumn(t, "line") {
		if !strings.Contains(code, `"`+line) {
			t.Errorf("no code logs %q", line)
		}
	}
}

func TestMonitoringPage_Events(t *testing.T) {
	code := sources(t)
	var messages, reasons []string
	for _, found := range lockEvent.FindAllStringSubmatch(code, -1) {
		text, err := strconv.Unquote(found[1] + found[2])
		harness.Must(t, err)
		messages = append(messages, formatVerb.ReplaceAllString(text, "…"))
	}
	for _, found := range eventReason.FindAllStringSubmatch(code, -1) {
		reasons = append(reasons, found[1])
	}
	for header, want := range map[string][]string{"message": messages, "reason": reasons} {
		slices.Sort(want)
		want = slices.Compact(want)
		if got := firstColumn(t, header); !slices.Equal(got, want) || len(want) < 8 {
			t.Errorf("the page lists %q, the code has %q", got, want)
		}
	}
}
