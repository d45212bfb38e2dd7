package errlist

import (
	"strings"
	"unicode"

	"github.com/hashicorp/go-multierror"
)

// Error returns errs as an error with the texts of all errors in one line. It returns nil if there are none.
func Error(errs *multierror.Error) error {
	if errs != nil {
		errs.ErrorFormat = line
	}
	return errs.ErrorOrNil()
}

func line(errs []error) string {
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return strings.Join(texts, "; ")
}

// SingleLine returns a text on one line, and its beginning if it is longer than most bytes. Characters that a terminal does not show are
// replaced, because the text of another program could contain terminal escapes.
func SingleLine(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.Join(strings.Fields(text), " "))
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
