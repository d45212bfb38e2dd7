package bootstrap

import (
	"context"
	"fmt"
	"log/slog"

	istiolog "istio.io/pkg/log"
)

// NewLogger writes to Istio's log, in the scope "pilot".
func NewLogger() *slog.Logger {
	return slog.New(bridge{scope: istiolog.RegisterScope("pilot", "the control-plane server")})
}

// bridge hands slog's records to a scope of Istio's log.
type bridge struct {
	scope  *istiolog.Scope
	labels []any  // keys and values, as WithLabels takes them
	prefix string // of open groups, each with a dot
}

// Enabled is slog.Handler's, as are the methods below.
func (b bridge) Enabled(_ context.Context, level slog.Level) bool {
	switch {
	case level >= slog.LevelError:
		return b.scope.ErrorEnabled()
	case level >= slog.LevelWarn:
		return b.scope.WarnEnabled()
	case level >= slog.LevelInfo:
		return b.scope.InfoEnabled()
	}
	return b.scope.DebugEnabled()
}

func (b bridge) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		b = b.with(a)
		return true
	})
	scope := b.scope
	if len(b.labels) > 0 {
		scope = scope.WithLabels(b.labels...)
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

func (b bridge) WithAttrs(attrs []slog.Attr) slog.Handler {
	for _, a := range attrs {
		b = b.with(a)
	}
	return b
}

func (b bridge) WithGroup(name string) slog.Handler {
	if name != "" {
		b.prefix += name + "."
	}
	return b
}

// with adds one attribute, or the members of a group.
func (b bridge) with(a slog.Attr) bridge {
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		inner := b
		if a.Key != "" {
			inner.prefix += a.Key + "."
		}
		for _, member := range value.Group() {
			inner = inner.with(member)
		}
		b.labels = inner.labels
		return b
	}
	if a.Key == "" {
		return b
	}
	labels := make([]any, 0, len(b.labels)+2)
	b.labels = append(append(labels, b.labels...), b.prefix+a.Key, plain(value))
	return b
}

// plain is a value that reads the same in text and in JSON.
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
