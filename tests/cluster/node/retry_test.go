package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// What fails is tried again, after pauses that grow up to a bound, and reported once for each
// text.
func TestRetryGoesOnUntilItSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, errAway, errBusy := time.Now(), errors.New("away"), errors.New("busy")
		answers := []error{errAway, errAway, errBusy, errBusy, errAway, errAway, errAway, errAway, nil}
		var tries []time.Duration
		var heard []error
		done := retry(t.Context(), func(err error) { heard = append(heard, err) }, func(ctx context.Context) error {
			if deadline, bounded := ctx.Deadline(); !bounded || time.Until(deadline) != callTimeout {
				t.Errorf("a try may take until %v (%v)", deadline, bounded)
			}
			tries = append(tries, time.Since(began))
			return answers[len(tries)-1]
		})
		at, want := time.Duration(0), []time.Duration{0}
		for _, pause := range []time.Duration{50, 100, 200, 400, 800, 1600, 2000, 2000} {
			at += pause * time.Millisecond
			want = append(want, at)
		}
		if !done || !slices.Equal(tries, want) {
			t.Errorf("%v, with tries after %v, want %v", done, tries, want)
		}
		if !slices.Equal(heard, []error{errAway, errBusy, errAway}) {
			t.Errorf("it reported %v", heard)
		}
	})
}

func TestRetryGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		if retry(t.Context(), func(error) {}, func(context.Context) error {
			tries++
			return fmt.Errorf("never (%w)", errFinal)
		}) || tries != 1 {
			t.Errorf("what is final was tried %d times", tries)
		}
		for what, ends := range map[string]time.Duration{"in a pause": 70 * time.Millisecond, "in a try": time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), ends)
			defer cancel()
			began, heard := time.Now(), 0
			if retry(ctx, func(error) { heard++ }, func(ctx context.Context) error {
				if what == "in a try" {
					<-ctx.Done()
				}
				return errors.New("away")
			}) || time.Since(began) != ends {
				t.Errorf("%s it gave up after %v, want %v", what, time.Since(began), ends)
			}
			// Who has ended it need not hear of that.
			if want := map[string]int{"in a pause": 1, "in a try": 0}[what]; heard != want {
				t.Errorf("%s it reported %d errors, want %d", what, heard, want)
			}
		}
	})
}
