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

// maxOwnName bounds one's own identity and key: a pod name, a revision.
const maxOwnName = 253

// validate reports every mistake in the fields of a lock, naming the lock.
func validate(word string, meta *metav1.ObjectMeta, config *ResourceLockConfig, hasClient bool) error {
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
		return fmt.Errorf("%s lock %s: %w", word, describe(meta), err)
	}
	return nil
}

func validateObject(what, is string, mistakes []string) error {
	if is == "" {
		return fmt.Errorf("the lock's %s is empty", what)
	}
	if len(mistakes) > 0 {
		return fmt.Errorf("the lock's %s %q: %s", what, is, strings.Join(mistakes, "; "))
	}
	return nil
}

// ValidateIdentity reports why an identity cannot take part: the marker annotation
// is made of words between spaces, so the identity must be one.
func ValidateIdentity(identity string) error {
	if identity == "" {
		return errors.New("the identity is empty")
	}
	return validateWord("identity", identity)
}

// ValidateKey reports why a key cannot be written into a lock. An empty one can.
func ValidateKey(key string) error { return validateWord("key", key) }

func validateWord(what, is string) error {
	switch {
	case len(is) > maxOwnName:
		return fmt.Errorf("the %s is %d bytes long, more than %d", what, len(is), maxOwnName)
	case !utf8.ValidString(is):
		return fmt.Errorf("the %s %q is not UTF-8", what, is)
	case strings.ContainsFunc(is, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return fmt.Errorf("the %s %q contains white space or a control character", what, is)
	}
	return nil
}
