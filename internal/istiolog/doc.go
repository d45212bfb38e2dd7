// Package istiolog connects log/slog to the log of istio.io/pkg.
package istiolog
