package istiolog

import (
	"context"
	"fmt"
	"log/slog"

	istiolog "istio.io/pkg/log"
)

// New returns a logger that writes to Istio's log, in the scope "pilot".
func New() *slog.Logger {
	return slog.New(handler{scope: istiolog.RegisterScope("pilot", "the control-plane server")})
}

// handler is a slog.Handler that writes to a scope of Istio's log.
type handler struct {
	scope  *istiolog.Scope
	labels []any  // keys and values, as WithLabels takes them
	prefix string // of open groups, each with a dot
}

func (h handler) Enabled(_ context.Context, level slog.Level) bool {
	switch {
	case level >= slog.LevelError:
		return h.scope.ErrorEnabled()
	case level >= slog.LevelWarn:
		return h.scope.WarnEnabled()
	case level >= slog.LevelInfo:
		return h.scope.InfoEnabled()
	}
	return h.scope.DebugEnabled()
}

func (h handler) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		h = h.with(a)
		return true
	})
	scope := h.scope
	if len(h.labels) > 0 {
		scope = scope.WithLabels(h.labels...)
	}
	switch {
	case record.Level >= slog.LevelError:
		scope.Error(record.Message)
	case record.Level >= slog.LevelWarn:
		scope.Warn(record.Message)
	case record.Level >= slog.LevelInfo:
		scope.Info(record.Message)
	default:
		scope.Debug(record.Message)
	}
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		h = h.with(a)
	}
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.prefix += name + "."
	}
	return h
}

// with adds one attribute, or the members of a group.
func (h handler) with(a slog.Attr) handler {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		inner := h
		if a.Key != "" {
			inner.prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			inner = inner.with(member)
		}
		h.labels = inner.labels
		return h
	}
	if a.Key == "" {
		return h
	}
	// Copy the labels: other loggers share the slice.
	labels := make([]any, 0, len(h.labels)+2)
	h.labels = append(append(labels, h.labels...), h.prefix+a.Key, plain(value))
	return h
}

// plain returns a value with the same form in text and in JSON.
func plain(value slog.Value) any {
	switch value.Kind() {
	case slog.KindBool, slog.KindInt64, slog.KindUint64, slog.KindFloat64, slog.KindString:
		return value.Any()
	case slog.KindDuration, slog.KindTime:
		return value.String()
	case slog.KindAny, slog.KindGroup, slog.KindLogValuer:
	}
	if list, ok := value.Any().([]string); ok {
		return list
	}
	return fmt.Sprint(value.Any())
}
