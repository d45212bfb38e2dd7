package k8sresourcelock

import (
	"fmt"
	"strings"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

// A response does not replace a newer state.
func TestPairMemory(t *testing.T) {
	at := func(version string) Snapshot {
		return Snapshot{Exists: version != "", ResourceVersion: version, Raw: []byte(version)}
	}
	type step struct {
		what    string // "ask", "answer", "store"
		version string
		want    string // the version that is known then
	}
	for name, steps := range map[string][]step{
		"a lock that was never there":                     {{"ask", "", "0"}, {"answer", "", "0"}},
		"a read counts":                                   {{"ask", "", "0"}, {"answer", "10", "10"}},
		"an older write's answer does not":                {{"store", "10", "10"}, {"store", "9", "10"}},
		"a read of a restored store counts":               {{"store", "10", "10"}, {"ask", "", "10"}, {"answer", "8", "8"}},
		"read sent before it":                             {{"store", "8", "8"}, {"ask", "", "8"}, {"store", "10", "10"}, {"answer", "9", "10"}},
		"newer read sent before it":                       {{"ask", "", "0"}, {"store", "10", "10"}, {"answer", "11", "11"}},
		"under way while a write changed nothing":         {{"store", "10", "10"}, {"ask", "", "10"}, {"store", "10", "10"}, {"answer", "9", "10"}},
		"under way while the lock was deleted":            {{"store", "10", "10"}, {"ask", "", "10"}, {"store", "12", "12"}, {"answer", "", "12"}},
		"deletion is later than the object":               {{"store", "10", "10"}, {"ask", "", "10"}, {"answer", "", "10"}},
		"of two reads under way the first to be answered": {{"store", "10", "10"}, {"ask", "", "10"}, {"answer", "10", "10"}, {"answer", "9", "10"}},
	} {
		t.Run(name, func(t *testing.T) {
			var m pairMemory
			asked := uint32(0)
			for _, s := range steps {
				var err error
				switch s.what {
				case "ask":
					sight, _ := m.state()
					asked = sight.Changes(0)
				case "answer":
					err = m.applyRead(0, at(s.version), asked)
				case "store":
					_, err = m.apply(0, at(s.version))
				}
				if got := m.view.Primary.Version; err != nil || fmt.Sprint(got) != s.want {
					t.Fatalf("%s %s: version %d is known, error %v; want %s", s.what, s.version, got, err, s.want)
				}
				// The shown state has this version. An unknown object has no version 0.
				if is := m.objects.Primary; is.ResourceVersion != strings.TrimPrefix(s.want, "0") || is.Exists && string(is.Raw) != s.want {
					t.Fatalf("%s %s: version %q is shown, of version %s, want %s", s.what, s.version, is.ResourceVersion, is.Raw, s.want)
				}
			}
		})
	}
}

func TestPairMemory_Events(t *testing.T) {
	var m pairMemory
	show := func(h core.Half, text string) (string, bool) {
		t.Helper()
		pair, ok, err := m.applyEvent(h, one(t, []string{"p", "s"}[h], text).Snapshot, "me")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(pair.Parts), ok
	}
	if got, ok := show(0, "@5 b/3 half"); ok {
		t.Errorf("shown: %s, and the secondary is not known", got)
	}
	if got, ok := show(1, "@6 b/3 half"); !ok || got != "[{p 5 true} {s 6 true}]" {
		t.Errorf("shown: %v %s", ok, got)
	}
	if got, ok := show(1, "@4 b/2 half"); ok {
		t.Errorf("outdated, and shown as %s", got)
	}
	if got, ok := show(0, "@5 b/3 half"); !ok || got != "[{p 5 true} {s 6 true}]" {
		t.Errorf("a watch that starts with the known state shows %v %s", ok, got)
	}
	var other pairMemory
	if _, ok, err := other.applyEvent(1, one(t, "s", "@6 b/3 half").Snapshot, "me"); ok || err != nil {
		t.Errorf("shown %v, error %v, and the primary is not known", ok, err)
	}
	if pair, ok, err := m.applyEvent(0, Snapshot{Exists: true, ResourceVersion: "1a"}, "me"); ok || err == nil || pair.Exists {
		t.Errorf("version 1a: shown %v, error %v", ok, err)
	}
	if _, ok, err := m.applyEvent(0, Snapshot{}, "me"); ok || err == nil {
		t.Errorf("a change without a version: shown %v, error %v", ok, err)
	}
	if _, err := m.apply(0, Snapshot{Exists: true, ResourceVersion: "1a"}); err == nil {
		t.Error("version 1a is stored")
	}
}
