package record

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is the maximum length of an own identity or key in bytes.
const maxWord = 253

// ValidateIdentity returns an error if identity cannot be used by a candidate. It must be one word, because the
// marker annotation separates its fields with spaces.
func ValidateIdentity(identity string) error {
	if identity == "" {
		return errors.New("identity is empty")
	}
	return validateWord("identity", identity)
}

// ValidateKey returns an error if key cannot be written into a lock. An empty key is valid.
func ValidateKey(key string) error { return validateWord("key", key) }

func validateWord(field, value string) error {
	switch {
	case len(value) > maxWord:
		return fmt.Errorf("%s has %d bytes, more than %d", field, len(value), maxWord)
	case !utf8.ValidString(value):
		return fmt.Errorf("%s %q is not UTF-8", field, value)
	case strings.ContainsFunc(value, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return fmt.Errorf("%s %q contains white space or a control character", field, value)
	}
	return nil
}
