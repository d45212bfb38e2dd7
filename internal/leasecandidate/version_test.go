package leasecandidate

import "testing"

func TestVersion(t *testing.T) {
	for text, want := range map[string]string{
		"v1.2.3": "1.2.3", "1.2.3": "1.2.3", "1.2.3-rc.1+build": "1.2.3-rc.1+build", "v0.0.0-20261123142546-43643c5aaaaa+dirty": "0.0.0-20261123142546-43643c5aaaaa+dirty",
		"(devel)": "0.0.0", "": "0.0.0", "1.2": "0.0.0", "01.2.3": "0.0.0", "1.02.3": "0.0.0", " 1.2.3": "0.0.0", "1.2.3 ": "0.0.0", "vv1.2.3": "0.0.0", "1.2.x": "0.0.0", "1..3": "0.0.0",
	} {
		if got := Version(text); got != want {
			t.Errorf("Version(%q) = %q, want %q", text, got, want)
		}
	}
}
