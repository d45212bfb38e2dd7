// Package assert replaces testify in client-go's tests, so that this module does not require testify.
package assert

import (
	"reflect"
	"testing"
)

// NoError fails the test if err is not nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("unexpected error: %v", err)
	}
}

// EqualError fails the test if err does not have this text.
func EqualError(t testing.TB, err error, text string) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("error %v, want %s", err, text)
	}
}

// Equal fails the test if want and got differ.
func Equal(t testing.TB, want, got any, message string, args ...any) {
	t.Helper()
	if !reflect.DeepEqual(want, got) {
		t.Errorf(message, args...)
	}
}
