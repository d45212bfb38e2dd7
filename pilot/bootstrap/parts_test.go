package bootstrap

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// partLog records the starts and ends of parts. Parts run one after the other, so it needs no mutex.
type partLog struct{ lines []string }

func (l *partLog) add(line string) { l.lines = append(l.lines, line) }

// part returns a part that needs stopTime to end. If err is set, the part fails to start.
func (l *partLog) part(name string, stopTime time.Duration, err error) part {
	return part{
		name: name, bound: 10 * time.Second,
		start: func() error {
			l.add("start " + name)
			return err
		},
		run: func(ctx context.Context) error {
			<-ctx.Done()
			<-time.After(stopTime)
			l.add("end " + name)
			return nil
		},
	}
}

func TestRunParts(t *testing.T) {
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		parts func(l *partLog, cancel func()) []part
		want  []string
		is    error  // the error wraps it
		text  string // the error contains it
	}{
		"stops in reverse order": {
			parts: func(l *partLog, cancel func()) []part {
				time.AfterFunc(time.Minute, cancel)
				return []part{l.part("a", 0, nil), l.part("b", time.Second, nil), l.part("c", 3*time.Second, nil)}
			},
			want: []string{"start a", "start b", "start c", "stopping", "end c", "end b", "end a"},
		},
		"failed start rolls back": {
			parts: func(l *partLog, _ func()) []part {
				return []part{l.part("a", 0, nil), l.part("b", 0, broken), l.part("c", 0, nil)}
			},
			want: []string{"start a", "start b", "stopping", "end a"}, is: broken, text: "start b",
		},
		"part that ends early stops the others": {
			parts: func(l *partLog, _ func()) []part {
				early := part{name: "b", bound: time.Second, run: func(context.Context) error { return broken }}
				return []part{l.part("a", 0, nil), early}
			},
			want: []string{"start a", "stopping", "end a"}, is: broken, text: "b ended early",
		},
		"cancel during start": {
			parts: func(l *partLog, cancel func()) []part {
				first := l.part("a", 0, nil)
				first.start = func() error { cancel(); return nil }
				return []part{first, l.part("b", 0, nil)}
			},
			want: []string{"stopping", "end a"},
		},
		"part that exceeds its bound is reported": {
			parts: func(l *partLog, cancel func()) []part {
				stuck := part{name: "stuck", bound: 10 * time.Second, run: func(ctx context.Context) error {
					<-ctx.Done()
					<-time.After(time.Minute)
					return nil
				}}
				time.AfterFunc(time.Second, cancel)
				return []part{l.part("a", 0, nil), stuck}
			},
			want: []string{"start a", "stopping", "end a"}, is: errStopTimeout, text: "stuck",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var l partLog
				began := time.Now()
				err := runParts(ctx, quiet, func() { l.add("stopping") }, test.parts(&l, cancel))
				if !errors.Is(err, test.is) || err != nil && !strings.Contains(err.Error(), test.text) {
					t.Errorf("error %v", err)
				}
				if !slices.Equal(l.lines, test.want) {
					t.Errorf("%q, want %q", l.lines, test.want)
				}
				if took := time.Since(began); errors.Is(err, errStopTimeout) && took != 11*time.Second {
					t.Errorf("the stop took %v", took)
				}
				time.Sleep(time.Minute) // for the stuck part
			})
		})
	}
}
