package ctl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// explained adds the next step to errors of the API server and of the way to it.
func explained(err error) error {
	var c coded
	var network net.Error
	var address *url.Error
	switch {
	case errors.As(err, &c):
		return err
	case apierrors.IsForbidden(err):
		return withCode(Refused, "%w; see what you may do: kubectl auth can-i --list", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not know you: %w; renew your credentials, or choose others with --context", err)
	case errors.As(err, &address) && errors.As(err, &network):
		return fmt.Errorf("the API server does not answer: %w; see whether it is up and the context is the right one: kubectl cluster-info", err)
	}
	return err
}

// plain makes text safe for a terminal and for a line: names come from others.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsGraphic(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}
