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
	// senders is the number of concurrent requests.
	senders = 16
	// requestLimit bounds one request. It is long, because a busy machine is not a failure.
	requestLimit = 30 * time.Second
	// maxErrors is the number of errors that are kept.
	maxErrors = 5
)

// Requests sends HTTP requests to a list of URLs in turn.
type Requests struct {
	// URLs receive the requests. Each response must be 200.
	URLs []string
	// Every is the time between two requests.
	Every time.Duration
	// Drain is copied to the results.
	Drain time.Duration

	mu     sync.Mutex
	counts verdict.Requests
}

// Run sends requests until ctx ends. It returns when all responses have arrived.
func (r *Requests) Run(ctx context.Context) {
	transport := &http.Transport{MaxIdleConnsPerHost: senders}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: requestLimit}
	turns := make(chan string)
	var all sync.WaitGroup
	for range senders {
		all.Go(func() {
			for url := range turns {
				// A request that has begun is finished, because the end of the test is not a failure.
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

// get sends one request. The response must be 200.
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
		return fmt.Errorf("read response of %s: %w", url, err)
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s responded %s", url, response.Status)
	}
	return nil
}

func (r *Requests) count(url string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Sent++
	if err != nil {
		r.counts.Failed++
		if len(r.counts.Errors) < maxErrors {
			r.counts.Errors = append(r.counts.Errors, fmt.Sprintf("%s: %v", url, err))
		}
	}
}

// Results returns the results so far.
func (r *Requests) Results() verdict.Requests {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := r.counts
	counts.Drain = r.Drain
	counts.Errors = append([]string(nil), counts.Errors...)
	return counts
}
