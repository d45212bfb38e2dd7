package defaults

import (
	"slices"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestWatcher(t *testing.T) {
	w := New("stable")
	var told []string
	w.AddHandler(func(revision string) {
		if w.GetDefault() != revision { // which a handler may do
			t.Errorf("told %q of %q", revision, w.GetDefault())
		}
		told = append(told, revision)
	})
	if !w.HasSynced() || w.GetDefault() != "stable" {
		t.Errorf("synced %v, default %q", w.HasSynced(), w.GetDefault())
	}
	w.Set("canary")
	w.Set("")
	if want := []string{"canary", ""}; !slices.Equal(told, want) || w.GetDefault() != "" {
		t.Errorf("told %q, default %q", told, w.GetDefault())
	}
	stop := make(chan struct{})
	close(stop)
	w.Run(stop)
}
