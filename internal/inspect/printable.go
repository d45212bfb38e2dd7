package inspect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// printable reports whether a terminal shows a character. It does not show controls, and characters that change the direction of text.
func printable(r rune) bool { return unicode.IsGraphic(r) || r == '\n' || r == '\t' }

// Printable returns a text whose other characters are replaced. Values of other processes could contain terminal escapes.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !printable(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// PrintableJSON returns JSON whose other characters are escaped. They are in strings.
func PrintableJSON(raw []byte) []byte {
	var out bytes.Buffer
	for _, r := range string(raw) {
		if printable(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.Bytes()
}

// WriteJSON writes a value as printable JSON.
func WriteJSON(w io.Writer, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(PrintableJSON(raw), '\n'))
	return err
}
