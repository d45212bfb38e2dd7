package fence

import "testing"

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{`a`: `'a'`, `a'b`: `'a\'b'`, `a\`: `'a\\'`, "a\nb": `'a\nb'`} {
		if got := quote(in); got != want {
			t.Errorf("%q became %s, not %s", in, got, want)
		}
	}
}
