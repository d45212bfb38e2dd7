package apirequest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		began := time.Now()
		if err := Pause(ctx, time.Second); err != nil || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		enough := errors.New("enough")
		time.AfterFunc(time.Second, func() { cancel(enough) })
		if err := Pause(ctx, time.Minute); !errors.Is(err, enough) || time.Since(began) != 2*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestBackoff(t *testing.T) {
	for _, test := range []struct {
		first, most time.Duration
		want        []time.Duration
	}{
		{time.Second, 5 * time.Second, []time.Duration{1, 2, 4, 5, 5, 5}},
		{time.Second, 4 * time.Second, []time.Duration{1, 2, 4, 4, 4}},
		{time.Second, time.Second, []time.Duration{1, 1, 1}},
	} {
		backoff := Backoff(test.first, test.most)
		for i, want := range test.want {
			if got := backoff.Step(); got != want*time.Second {
				t.Errorf("from %v to %v: wait %d is %v, want %v", test.first, test.most, i, got, want*time.Second)
			}
		}
	}
}
