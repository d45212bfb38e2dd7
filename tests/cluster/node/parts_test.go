package node

import (
	"slices"
	"testing"
	"time"
)

func TestExpand(t *testing.T) {
	v := variables{"A": "1", "B": "$(A)"}
	for text, want := range map[string]string{
		"": "", "plain": "plain", "$(A)": "1", "x$(A)y$(A)": "x1y1", "$(B)": "$(A)", "$(C)": "$(C)", "$$(A)": "$(A)",
		"$": "$", "$$": "$", "$(": "$(", "$(A": "$(A", "$A": "$A", "$(C)$(A)": "$(C)1", "$($(A))": "$(1)",
	} {
		if got := v.expand(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if list := v.list(); !slices.Equal(list, []string{"A=1", "B=$(A)"}) {
		t.Errorf("environment: %q", list)
	}
}

func TestRestartDelay(t *testing.T) {
	o := Options{RestartDelay: time.Second, MaxRestartDelay: 5 * time.Second}
	for n, want := range []time.Duration{0, time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second, 5 * time.Second} {
		if got := o.restartDelay(n); got != want {
			t.Errorf("restart %d: %v, want %v", n, got, want)
		}
	}
}
