package errlist

import (
	"strings"

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

// SingleLine returns a text on one line, and its beginning if it is longer than most bytes.
func SingleLine(text string, most int) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
