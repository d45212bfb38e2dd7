package errlist

import (
	"errors"
	"testing"

	"github.com/hashicorp/go-multierror"
)

func TestError(t *testing.T) {
	a, b := errors.New("a"), errors.New("b")
	for want, list := range map[string]*multierror.Error{
		"a": multierror.Append(nil, a), "a; b": multierror.Append(nil, a, b),
	} {
		if err := Error(list); err == nil || err.Error() != want || !errors.Is(err, a) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if err := Error(nil); err != nil {
		t.Error(err)
	}
	if err := Error(&multierror.Error{}); err != nil {
		t.Error(err)
	}
}

func TestSingleLine(t *testing.T) {
	for text, want := range map[string]string{"a\n\tb  c": "a b c", "": "", "1234567890": "1234567890", "12345678901": "1234567890…", "123456789é": "123456789…", "\x1b[1m\u202e": "�[1m�"} {
		if got := SingleLine(text, 10); got != want {
			t.Errorf("%q gives %q, want %q", text, got, want)
		}
	}
}
