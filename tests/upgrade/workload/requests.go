package workload

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"incumbent.dev/incumbent/tests/upgrade/verdict"
)

const (
	// senders is how many requests may be under way at once.
	senders = 16
	// requestLimit bounds one request. It is no measure of speed: a machine that is busy is not a request that failed.
	requestLimit = 30 * time.Second
	// someWhy is how many failures are told of.
	someWhy = 5
)

// Requests sends HTTP requests to some addresses in turn, for as long as Run does.
type Requests struct {
	// URLs are where to; each answer must be 200.
	URLs []string
	// Every is the time between two.
	Every time.Duration
	// Drain is said in the figures.
	Drain time.Duration

	mu     sync.Mutex
	counts verdict.Requests
}

// Run sends until ctx ends, and returns when all that were sent are answered.
func (r *Requests) Run(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: senders}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: requestLimit}
	turns := make(chan string)
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for url := range turns {
				// A request that was begun is finished: what ends with the test is no failure.
				r.count(url, get(context.WithoutCancel(ctx), client, url))
			}
		})
	}
	defer all.Wait()
	defer close(turns)
	tick := time.NewTicker(r.Every)
	defer tick.Stop()
	for turn := 0; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		select {
		case <-ctx.Done():
			return
		case turns <- r.URLs[turn%len(r.URLs)]:
		}
	}
}

func get(ctx context.Context, client *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return fmt.Errorf("%s: the answer: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

func (r *Requests) count(url string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Sent++
	if err != nil {
		r.counts.Failed++
		if len(r.counts.Why) < someWhy {
			r.counts.Why = append(r.counts.Why, fmt.Sprintf("%s: %v", url, err))
		}
	}
}

// SoFar is how they went.
func (r *Requests) SoFar() verdict.Requests {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.counts
	counts.Drain = r.Drain
	counts.Why = append([]string(nil), counts.Why...)
	return counts
}
