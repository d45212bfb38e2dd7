package k8sresourcelock

import (
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"incumbent.dev/incumbent/internal/record"
)

// validate returns all errors in the fields of a lock.
func validate(kind string, meta *metav1.ObjectMeta, config *ResourceLockConfig, hasClient bool) error {
	errs := []error{
		validateObject("namespace", meta.Namespace, validation.IsDNS1123Label(meta.Namespace)),
		validateObject("name", meta.Name, validation.IsDNS1123Subdomain(meta.Name)),
		record.ValidateIdentity(config.Identity),
		record.ValidateKey(config.Key),
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
