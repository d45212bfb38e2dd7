package fence

import (
	"bytes"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

var refusedBy = []byte("ValidatingAdmissionPolicy '" + PolicyPrefix)

// Refuses reports whether the text of an API server's response is a rejection by a policy of a fence. The text is the
// same in JSON and protobuf.
func Refuses(text []byte) bool { return bytes.Contains(text, refusedBy) }

// IsRefusal reports whether err is the rejection of a write by a policy of a fence.
func IsRefusal(err error) bool {
	status := apierrors.APIStatus(nil)
	return errors.As(err, &status) && Refuses([]byte(status.Status().Message))
}
