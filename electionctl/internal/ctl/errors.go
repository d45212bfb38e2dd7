package ctl

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"incumbent.dev/incumbent/internal/fence"
)

// explained adds advice to errors of the API server and of the network.
func explained(err error) error {
	switch {
	case errors.As(err, new(coded)):
		return err
	case fence.IsRefusal(err) && strings.Contains(err.Error(), "verb "+fence.OperateVerb):
		return withCode(Refused, "%w; a fence guards the lock: use a role with the verb %s, such as pilot-REVISION-operator of the chart", err, fence.OperateVerb)
	case apierrors.IsForbidden(err):
		return withCode(Refused, "%w; list your permissions: kubectl auth can-i --list", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("API server rejected the credentials: %w; renew them, or use another --context", err)
	case errors.As(err, new(*tls.CertificateVerificationError)), errors.As(err, new(tls.AlertError)),
		errors.As(err, new(tls.RecordHeaderError)), errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Errorf("TLS connection to the API server failed: %w; check the server address and certificate-authority of the context: kubectl config view --minify", err)
	case strings.Contains(err.Error(), "getting credentials: "): // by the plugin of the context's user
		return fmt.Errorf("failed to get credentials for the API server: %w; check the user of the context: kubectl config view --minify", err)
	case isParse(err):
		return withCode(misused, "invalid address of the API server: %w; check --server and the context: kubectl config view --minify", err)
	case errors.As(err, new(*url.Error)) && errors.As(err, new(net.Error)):
		return fmt.Errorf("API server does not respond: %w; check the context: kubectl cluster-info", err)
	}
	return err
}

// isParse reports whether a URL is invalid.
func isParse(err error) bool {
	wrong, ok := errors.AsType[*url.Error](err)
	return ok && wrong.Op == "parse"
}

// inOneLine joins the lines of an error.
func inOneLine(s string) string {
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
