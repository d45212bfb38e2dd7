package fence

import (
	"bytes"
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const refusedBy = "ValidatingAdmissionPolicy '" + PolicyPrefix

// Refuses reports whether the text of an API server's response is a rejection by a policy of a fence. The text is the
// same in JSON and protobuf.
func Refuses(text []byte) bool { return bytes.Contains(text, []byte(refusedBy)) }

// ParseRefusal returns the policy and the reason of a rejection by a policy of a fence. ok is false if the message is no such
// rejection.
func ParseRefusal(message string) (policy, reason string, ok bool) {
	_, rest, ok := strings.Cut(message, refusedBy)
	if !ok {
		return "", "", false
	}
	name, reason, _ := strings.Cut(rest, "'")
	if _, denial, found := strings.Cut(reason, "denied request: "); found {
		reason = denial
	}
	return PolicyPrefix + name, reason, true
}

// IsRefusal reports whether err is the rejection of a write by a policy of a fence.
func IsRefusal(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && Refuses([]byte(status.Status().Message))
}
