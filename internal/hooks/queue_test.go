package hooks

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestQueue_Order(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		var got, want []int
		for i := range 100 {
			want = append(want, i)
			q.Do(func() {
				<-time.After(time.Duration(i%3) * time.Millisecond)
				got = append(got, i)
				if i%10 == 0 {
					runtime.Goexit()
				}
			})
		}
		if !q.Wait(time.Second) || !slices.Equal(got, want) || q.Dropped() != 0 {
			t.Errorf("calls %v, dropped %d", got, q.Dropped())
		}
	})
}

// A function that does not return delays Wait by its limit. The oldest of too many waiting functions are dropped.
func TestQueue_Drops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		release := make(chan struct{})
		q.Do(func() { <-release })
		synctest.Wait()
		var got []int
		for i := range limit + 3 {
			q.Do(func() { got = append(got, i) })
		}
		began := time.Now()
		if q.Wait(time.Minute) || time.Since(began) != time.Minute || q.Dropped() != 3 {
			t.Errorf("waited %v, dropped %d", time.Since(began), q.Dropped())
		}
		close(release)
		if !q.Wait(time.Minute) || len(got) != limit || got[0] != 3 || got[limit-1] != limit+2 {
			t.Errorf("calls %v", got)
		}
	})
}

// A callback follows the reports before it, but does not wait long for them, and neither drops nor delays others.
func TestQueue_GoAfter(t *testing.T) {
	for name, x := range map[string]struct{ report, callback time.Duration }{
		"idle": {0, 0}, "short report": {time.Millisecond, time.Millisecond}, "report does not return": {time.Hour, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			var q Queue
			began := time.Now()
			var called time.Duration
			q.Do(func() { <-time.After(x.report) })
			q.Go(func() { <-time.After(time.Hour) })
			q.GoAfter(func() { <-time.After(time.Hour) })
			q.GoAfter(func() {
				called = time.Since(began)
				<-time.After(2 * time.Hour)
			})
			if !q.Wait(3*time.Hour) || called != x.callback || time.Since(began) != 2*time.Hour+x.callback {
				t.Errorf("%s: called after %v, waited %v", name, called, time.Since(began))
			}
		})
	}
}

// slowHandler blocks in all its methods.
type slowHandler struct {
	slog.Handler
	release chan struct{}
}

func (h slowHandler) Enabled(ctx context.Context, level slog.Level) bool {
	<-h.release
	return h.Handler.Enabled(ctx, level)
}

func (h slowHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	<-h.release
	return slowHandler{h.Handler.WithAttrs(attrs), h.release}
}

func (h slowHandler) WithGroup(name string) slog.Handler {
	<-h.release
	return slowHandler{h.Handler.WithGroup(name), h.release}
}

// Entries keep their time and order. A warning has the number of dropped entries.
func TestQueue_Logger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		var written bytes.Buffer
		release := make(chan struct{})
		log := q.Logger(slog.New(slowHandler{slog.NewTextHandler(&written, nil), release})).With("a", 1).WithGroup("g").With("b", 2)
		began := time.Now()
		log.Info("first", "c", 3)
		log.Debug("not enabled")
		synctest.Wait()
		<-time.After(time.Hour)
		close(release)
		if !q.Wait(0) && !q.Wait(time.Second) {
			t.Error("entries are not written")
		}
		want := "time=" + began.Format("2006-01-02T15:04:05.000Z07:00") + " level=INFO msg=first a=1 g.b=2 g.c=3\n"
		if got := written.String(); got != want {
			t.Errorf("log %q, want %q", got, want)
		}
		written.Reset()
		block := make(chan struct{})
		q.Do(func() { <-block })
		synctest.Wait()
		for range limit + 2 {
			log.Info("entry")
		}
		close(block)
		q.Wait(time.Second)
		lines := strings.Split(strings.TrimSpace(written.String()), "\n")
		if len(lines) != limit+1 || !strings.Contains(lines[0], "level=WARN") || !strings.HasSuffix(lines[0], "g.count=2") || strings.Contains(lines[1], "WARN") {
			t.Errorf("%d lines, first %q", len(lines), lines[:2])
		}
	})
}
