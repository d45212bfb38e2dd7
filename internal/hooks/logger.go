package hooks

import (
	"context"
	"log/slog"
)

// Logger returns a logger that does not block: the handler of to receives the entries through the Queue. Each has the time at which
// it was logged. After entries or other functions were dropped, the next entry follows a warning with their number.
func (q *Queue) Logger(to *slog.Logger) *slog.Logger {
	return slog.New(&handler{queue: q, to: to.Handler})
}

type handler struct {
	queue *Queue
	to    func() slog.Handler // called in the goroutine of the Queue, because each method of a Handler may block
}

// Enabled implements slog.Handler. Handle decides.
func (*handler) Enabled(context.Context, slog.Level) bool { return true }

func (h *handler) Handle(ctx context.Context, entry slog.Record) error {
	h.queue.Do(func() {
		if n := h.queue.lost(); n > 0 {
			warning := slog.NewRecord(entry.Time, slog.LevelWarn, "dropped log entries, events and metrics, because code of the caller did not return", entry.PC)
			warning.Add("count", n)
			h.write(ctx, warning)
		}
		h.write(ctx, entry)
	})
	return nil
}

func (h *handler) write(ctx context.Context, entry slog.Record) {
	if to := h.to(); to.Enabled(ctx, entry.Level) {
		_ = to.Handle(ctx, entry)
	}
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.queue, func() slog.Handler { return h.to().WithAttrs(attrs) }}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.queue, func() slog.Handler { return h.to().WithGroup(name) }}
}

// lost returns the number of functions that were dropped since the last call.
func (q *Queue) lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.dropped - q.reported
	q.reported = q.dropped
	return n
}
