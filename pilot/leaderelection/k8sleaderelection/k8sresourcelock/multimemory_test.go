package k8sresourcelock

import (
	"fmt"
	"testing"

	"incumbent.dev/incumbent/pilot/leaderelection/k8sleaderelection/internal/core"
)

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
