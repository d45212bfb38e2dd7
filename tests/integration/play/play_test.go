package play

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"incumbent.dev/incumbent/internal/testutil/play"
)

// playedSeeds is how many runs an ordinary test plays: each mix once.
const playedSeeds = 7

// One at a time, and nobody makes a noise, whatever fails; and somebody leads when nothing
// fails any more. PLAY_SEEDS is how many seeds are played, from PLAY_FIRST on. A seed fixes
// what is done and when, as far as a machine keeps time; not how requests interleave.
func TestElectionsAtRandom(t *testing.T) {
	first, n := play.Number(t, os.Getenv, "PLAY_FIRST", 0), play.Number(t, os.Getenv, "PLAY_SEEDS", playedSeeds)
	var mu sync.Mutex
	var all played
	t.Run("seeds", func(t *testing.T) { // waits for all of them
		for seed := first; seed < first+n; seed++ {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				t.Parallel()
				p := playElection(t, uint64(seed), bug{})
				if len(p.violations) > 0 {
					t.Errorf("seed %d: %s", seed, strings.Join(p.violations, "; "))
					t.Log(p.log)
				}
				mu.Lock()
				defer mu.Unlock()
				all.writes, all.runs, all.orders, all.most = all.writes+p.writes, all.runs+p.runs, all.orders+p.orders, max(all.most, p.most)
			})
		}
	})
	t.Logf("figure: seeds %d to %d: %d writes in %d terms, %d orders, at most %d requests about an object in %v",
		first, first+n-1, all.writes, all.runs, all.orders, all.most, 10*retry)
}

// bug is a mistake that is planted around what is played.
type bug struct {
	move    func(*world) // in the place of all moves
	ungated bool         // the work's writes pass no gate
	token   bool         // the token stays the same
	silent  bool         // nothing passes any more when all is well
	wrap    func(http.RoundTripper) http.RoundTripper
}

// patience is how long the world waits for a leader when nothing fails any more.
func (b bug) patience() time.Duration {
	if b.silent {
		return 3 * lease
	}
	return soon
}

// insists sends a refused write again and again, as fast as it is answered.
type insists struct{ http.RoundTripper }

func (i insists) RoundTrip(req *http.Request) (*http.Response, error) {
	for tries := 0; ; tries++ {
		resp, err := i.RoundTripper.RoundTrip(req)
		if err != nil || resp.StatusCode != http.StatusForbidden || req.Method != http.MethodPut || tries == 100 {
			return resp, err
		}
		resp.Body.Close()
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
}

// WrappedRoundTripper lets client-go find the transport below.
func (i insists) WrappedRoundTripper() http.RoundTripper { return i.RoundTripper }

// noUpdates takes the right to write from all for a while.
func noUpdates(w *world) {
	for _, p := range w.processes {
		w.allow(p.Name, []string{"get", "watch"})
	}
	<-time.After(lease / 2)
	for _, p := range w.processes {
		w.allow(p.Name, lockVerbs)
	}
}

// What is planted has to be said.
func TestElectionsAtRandomShowPlantedBugs(t *testing.T) {
	for name, b := range map[string]struct {
		bug
		says string
	}{
		"the work's writes pass no gate":           {bug{move: (*world).Replace, ungated: true}, "two at once"},
		"a token that does not grow":               {bug{move: (*world).Replace, token: true}, "with the token 1, after"},
		"a refused write is sent again and again":  {bug{move: noUpdates, wrap: func(rt http.RoundTripper) http.RoundTripper { return insists{rt} }}, "requests in"},
		"nothing passes any more when all is well": {bug{move: (*world).Note, silent: true}, "nobody leads"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const most = 3
			for seed := range uint64(most) {
				for _, v := range playElection(t, 7*seed+3, b.bug).violations { // a mix without peers
					if strings.Contains(v, b.says) {
						t.Logf("seed %d: %s", seed, v)
						return
					}
				}
			}
			t.Errorf("no violation %q in %d seeds", b.says, most)
		})
	}
}
