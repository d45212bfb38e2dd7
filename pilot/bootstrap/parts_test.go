package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var quiet = slog.New(slog.DiscardHandler)

// diary notes what parts do, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// part takes stop to end, and fails to start with err.
func (d *diary) part(name string, stop time.Duration, err error) part {
	return part{
		name: name, bound: 10 * time.Second,
		start: func() error {
			d.note("start " + name)
			return err
		},
		run: func(ctx context.Context) error {
			<-ctx.Done()
			<-time.After(stop)
			d.note("end " + name)
			return nil
		},
	}
}

func TestPartsStopInReverseEachAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		var d diary
		err := runParts(ctx, quiet, func() {}, []part{d.part("a", 0, nil), d.part("b", time.Second, nil), d.part("c", 3*time.Second, nil)})
		if err != nil {
			t.Error(err)
		}
		if want := []string{"start a", "start b", "start c", "end c", "end b", "end a"}; !slices.Equal(d.lines, want) {
			t.Errorf("%q, want %q", d.lines, want)
		}
	})
}

func TestFailedStartRollsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		broken := errors.New("broken")
		err := runParts(t.Context(), quiet, func() {}, []part{d.part("a", 0, nil), d.part("b", 0, broken), d.part("c", 0, nil)})
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "starting b") {
			t.Errorf("error is %v", err)
		}
		if want := []string{"start a", "start b", "end a"}; !slices.Equal(d.lines, want) {
			t.Errorf("%q, want %q", d.lines, want)
		}
	})
}

func TestPartThatEndsByItselfEndsTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		lost := errors.New("lost")
		early := part{name: "b", bound: time.Second, run: func(context.Context) error { return lost }}
		err := runParts(t.Context(), quiet, func() {}, []part{d.part("a", 0, nil), early, d.part("c", 0, nil)})
		if !errors.Is(err, lost) || !strings.Contains(err.Error(), "b has ended by itself") {
			t.Errorf("error is %v", err)
		}
		if want := []string{"end c", "end a"}; !slices.Equal(d.lines[len(d.lines)-2:], want) {
			t.Errorf("%q does not end with %q", d.lines, want)
		}
	})
}

func TestPartThatOutstaysItsBoundIsReportedAndLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var d diary
		held := make(chan struct{})
		stuck := part{
			name: "stuck", bound: 10 * time.Second,
			start: func() error { cancel(); return nil },
			run:   func(context.Context) error { <-held; return nil },
		}
		began := time.Now()
		err := runParts(ctx, quiet, func() {}, []part{d.part("a", 0, nil), stuck})
		if !errors.Is(err, errOutstayed) || !strings.Contains(err.Error(), "stuck") || time.Since(began) != 10*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if !slices.Contains(d.lines, "end a") {
			t.Errorf("the part before it was not stopped: %q", d.lines)
		}
		close(held)
	})
}

func TestStopDuringStartStartsNoFurtherPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var d diary
		first := d.part("a", 0, nil)
		first.start = func() error { cancel(); return nil }
		if err := runParts(ctx, quiet, func() {}, []part{first, d.part("b", 0, nil)}); err != nil {
			t.Error(err)
		}
		if want := []string{"end a"}; !slices.Equal(d.lines, want) {
			t.Errorf("%q, want %q", d.lines, want)
		}
	})
}
