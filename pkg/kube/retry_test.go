package kube

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

func TestOlder(t *testing.T) {
	for _, pair := range [][2]string{{"9", "10"}, {"1", "2"}, {"99999999999999999999", "100000000000000000000"}} {
		if !Older(pair[0], pair[1]) || Older(pair[1], pair[0]) || Older(pair[0], pair[0]) {
			t.Errorf("%s and %s", pair[0], pair[1])
		}
	}
	for _, none := range []string{"", "a", "-1", "01"} {
		if Older(none, "5") || Older("5", none) {
			t.Errorf("%q is compared", none)
		}
	}
}
