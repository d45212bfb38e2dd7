package page

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// glossary has the words of the page for each concept, and the words that mean the same. The page uses only the first.
var glossary = []struct {
	word  string
	wrong []string
}{
	{"candidate", []string{"member", "contender", "participant"}},
	{"leader", []string{"master", "primary", "who acts", "who works"}},
	{"holder", []string{"keeper", "owner"}},
	{"follower", []string{"waiter", "standby"}},
	{"acquire", []string{"take", "takes", "taken", "took", "take over", "come by", "claim", "claims", "grab"}},
	{"release", []string{"give up", "gives up", "let go"}},
	{"renew", []string{"hold on"}},
	{"expire", []string{"lapse", "lapses", "lapsed"}},
	{"preempt", []string{"steal", "stole", "stolen", "displace", "displaces"}},
	{"handover", []string{"pass on", "switchover", "failover"}},
	{"handover request", []string{"asking", "order", "orders"}},
	{"on hold", []string{"obey", "frozen"}},
	{"drain", []string{"end of work"}},
	{"gate", nil},
	{"fence", []string{"fencing"}},
	{"validity", []string{"cover"}},
	{"other elector", []string{"stranger", "foreigner"}},
	{"a named actor", []string{"nobody", "somebody", "anybody", "everybody", "whoever", "whatever", "whichever"}},
}

var (
	markup = regexp.MustCompile(`<[^>]*>`)
	labels = regexp.MustCompile(`(?:title|aria-label|data-label)="([^"]*)"`)
)

// TestWords compares the words of the page, of its titles and of its labels with the glossary.
func TestWords(t *testing.T) {
	var text, raw strings.Builder
	show := func(s State) {
		for _, q := range []query{{Range: "5m"}, {Range: "1h", Asks: true, Default: "canary", Name: "x"}, {Range: "all", Asks: true}} {
			h := newHistory(8)
			frameOf(after(0), s, h)
			body, err := frameOf(after(10), s, h).page(q)
			harness.Must(t, err)
			page := string(body)
			raw.WriteString(page)
			for _, label := range labels.FindAllStringSubmatch(page, -1) {
				text.WriteString(label[1] + "\n")
			}
			text.WriteString(markup.ReplaceAllString(page, " "))
		}
	}
	show(sample())
	for _, e := range states() {
		show(State{Identity: "a", Elections: append(sample().Elections, e)})
	}
	words := strings.ToLower(html.UnescapeString(text.String()))
	for _, g := range glossary {
		for _, wrong := range g.wrong {
			if found := regexp.MustCompile(`\b` + wrong + `\b.*`).FindString(words); found != "" {
				t.Errorf("the page has %q, the glossary has %q: %.80s", wrong, g.word, found)
			}
		}
	}
	for _, s := range statuses {
		if !strings.Contains(raw.String(), `<span class="state `+s.Class()+`">`+string(s)+`</span></td>`) {
			t.Errorf("no example has the state %s", s)
		}
	}
}
