package node

import (
	"slices"
	"testing"
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
