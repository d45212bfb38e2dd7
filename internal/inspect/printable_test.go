package inspect

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestWriteJSON_Printable(t *testing.T) {
	hostile := "a\x1b[31m\x7f\u009b\u202e\u2066\u200f\U000E0001 ä漢😀\n\t\"<>"
	var out strings.Builder
	if err := WriteJSON(&out, []string{hostile}); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "[\n  \"a\\u001b[31m\\u007f\\u009b\\u202e\\u2066\\u200f\\udb40\\udc01 ä漢😀\\n\\t\\\"\\u003c\\u003e\"\n]\n"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	var back []string
	if err := json.Unmarshal([]byte(out.String()), &back); err != nil || back[0] != hostile {
		t.Errorf("%q, %v", back, err)
	}
}

func TestPrintable(t *testing.T) {
	if got, want := Printable("a\x1b\u009b\u202e ä\n\t"), "a\uFFFD\uFFFD\uFFFD ä\n\t"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
