package k8sresourcelock

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// maxOwnName is the maximum length of the identity and key of this process in bytes.
const maxOwnName = 253

// validate returns all errors in the fields of a lock.
func validate(kind string, meta *metav1.ObjectMeta, config *ResourceLockConfig, hasClient bool) error {
	errs := []error{
		validateObject("namespace", meta.Namespace, validation.IsDNS1123Label(meta.Namespace)),
		validateObject("name", meta.Name, validation.IsDNS1123Subdomain(meta.Name)),
		ValidateIdentity(config.Identity),
		ValidateKey(config.Key),
	}
	if !hasClient {
		errs = append(errs, errNoClient)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s lock %s: %w", kind, describe(meta), err)
	}
	return nil
}

func validateObject(field, value string, problems []string) error {
	if value == "" {
		return fmt.Errorf("%s is empty", field)
	}
	if len(problems) > 0 {
		return fmt.Errorf("%s %q: %s", field, value, strings.Join(problems, "; "))
	}
	return nil
}

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
	case len(value) > maxOwnName:
		return fmt.Errorf("%s has %d bytes, more than %d", field, len(value), maxOwnName)
	case !utf8.ValidString(value):
		return fmt.Errorf("%s %q is not UTF-8", field, value)
	case strings.ContainsFunc(value, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return fmt.Errorf("%s %q contains white space or a control character", field, value)
	}
	return nil
}
