package k8sresourcelock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// attempt is the result of one Watch.
type attempt struct {
	at   time.Duration // since the first
	from string
	ctx  context.Context
}

// scriptedWatch plays one attempt for each Watch, and repeats the last one.
type scriptedWatch struct {
	began    time.Time
	attempts []attempt
	script   []func(ctx context.Context, up func(), seen func(Snapshot)) (string, error)
}

func (s *scriptedWatch) Watch(ctx context.Context, from string, up func(), seen func(Snapshot)) (string, error) {
	if len(s.attempts) == 0 {
		s.began = time.Now()
	}
	n := len(s.attempts)
	s.attempts = append(s.attempts, attempt{time.Since(s.began), from, ctx})
	return s.script[min(n, len(s.script)-1)](ctx, up, seen)
}

func (s *scriptedWatch) from() (all []string) {
	for _, a := range s.attempts {
		all = append(all, a.from)
	}
	return all
}

// lasts connects and ends with its context.
func lasts(ctx context.Context, up func(), _ func(Snapshot)) (string, error) {
	up()
	<-ctx.Done()
	return "", nil
}

func alone(t *testing.T, script ...func(context.Context, func(), func(Snapshot)) (string, error)) (*scriptedWatch, *lockWatch) {
	s := &scriptedWatch{script: script}
	w := newLockWatch(t.Context(), s.Watch, nil, "", "", func() {})
	t.Cleanup(w.End)
	synctest.Wait()
	return s, w
}

func TestLockWatch_StoreRestored(t *testing.T) {
	(&lockWatch{}).StoreRestored("900") // before there is one
	synctest.Test(t, func(t *testing.T) {
		s, w := alone(t,
			func(ctx context.Context, up func(), seen func(Snapshot)) (string, error) {
				up()
				seen(Snapshot{ResourceVersion: "1000"})
				<-ctx.Done()
				return "1000", errors.New("ended")
			},
			func(_ context.Context, up func(), _ func(Snapshot)) (string, error) { up(); return "500", nil },
			lasts)
		wantTold(t, w, "up after a gap", "gone1000")
		w.StoreRestored("900") // immediately, because the watch was useful
		wantTold(t, w, "down", "up after a gap", "down")
		w.StoreRestored("400") // between two
		<-time.After(time.Minute)
		wantTold(t, w, "up after a gap")
		if got := s.from(); !slices.Equal(got, []string{"", "", ""}) {
			t.Errorf("watched from %q", got)
		}
	})
}

func TestLockWatch_Pauses(t *testing.T) {
	shows := func(err error) func(context.Context, func(), func(Snapshot)) (string, error) {
		return func(_ context.Context, up func(), seen func(Snapshot)) (string, error) {
			up()
			seen(Snapshot{ResourceVersion: "7"})
			return "7", err
		}
	}
	nothing := func(_ context.Context, up func(), _ func(Snapshot)) (string, error) { up(); return "", nil }
	for name, c := range map[string]struct {
		script []func(context.Context, func(), func(Snapshot)) (string, error)
		full   []time.Duration // each pause is from the half to the whole of one
	}{
		"nothing shown": {slices.Repeat([]func(context.Context, func(), func(Snapshot)) (string, error){nothing}, 10), []time.Duration{
			minPause, 2 * minPause, 4 * minPause, 8 * minPause, 16 * minPause, 32 * minPause, 64 * minPause, 64 * minPause, 64 * minPause, 64 * minPause,
		}},
		"something shown": {[]func(context.Context, func(), func(Snapshot)) (string, error){
			nothing, nothing, shows(nil), nothing, nothing, shows(errors.New("broken")), nothing,
		}, []time.Duration{minPause, 2 * minPause, 0, minPause, 2 * minPause, minPause, 2 * minPause}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := alone(t, append(c.script, lasts)...)
				<-time.After(time.Hour)
				synctest.Wait()
				if len(s.attempts) != len(c.full)+1 {
					t.Fatalf("%d watches", len(s.attempts))
				}
				for i, full := range c.full {
					if got := s.attempts[i+1].at - s.attempts[i].at; got < full/2 || got > full {
						t.Errorf("pause %d is %v, want the half to the whole of %v", i+1, got, full)
					}
				}
			})
		})
	}
}

func TestLockWatch_End(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := false
		_, w := alone(t, func(ctx context.Context, _ func(), _ func(Snapshot)) (string, error) {
			<-ctx.Done()
			<-time.After(time.Second)
			ended = true
			return "", nil
		})
		if w.End(); !ended {
			t.Error("it has not ended")
		}
		s, w := alone(t, func(context.Context, func(), func(Snapshot)) (string, error) { return "", errors.New("broken") })
		began := time.Now()
		if w.End(); time.Since(began) != 0 || len(s.attempts) != 1 {
			t.Errorf("it ended after %v and %d watches", time.Since(began), len(s.attempts))
		}
	})
}
