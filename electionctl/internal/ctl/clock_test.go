package ctl

import (
	"testing"
	"time"
)

func TestClockFinding_SlowRequest(t *testing.T) {
	for name, c := range map[string]struct {
		offset, possibleError time.Duration
		want                  verdict
	}{
		"equal":           {0, 0, well},
		"behind":          {-maxClockSkew - time.Second, 0, warning},
		"slow request":    {maxClockSkew + time.Second, 2 * time.Second, well},
		"larger than it":  {maxClockSkew + 3*time.Second, 2 * time.Second, warning},
		"behind and slow": {-maxClockSkew - time.Second, 2 * time.Second, well},
	} {
		x := &examination{}
		if x.ownClock(c.offset, c.possibleError); x.found[0].Verdict != c.want {
			t.Errorf("%s: %+v", name, x.found)
		}
	}
}
