package k8sresourcelock

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// ClientConfig derives, from a configuration that it leaves alone, one for the client
// of locks: not rate-limited, so that no burst of other work delays a renewal, and
// sending each request once.
//
// By itself client-go sends a write again when the answer is a 429 or a 5xx with a
// Retry-After. The first one may have been stored all the same; the second then
// reports a conflict, which reads as "nothing was written". Electors have their own
// pace and must get the first answer.
//
// It leaves the connections as they are. client-go's carry calls and watches together and
// are given up 45 s after they have died; a call that timed out is followed by others on the
// same one until then, which costs a leader its term. pkg/kube's FreshConnections, around the
// result, avoids that; for a clientset that was made without it nothing can be done here.
func ClientConfig(base *rest.Config) *rest.Config {
	config := rest.CopyConfig(base)
	config.QPS, config.Burst, config.RateLimiter = -1, 0, nil
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return sendOnce{next} })
	return config
}

// sendOnce takes from answers what client-go's retry goes by. What a 429 asks for goes on
// in its body, where apierrors.SuggestsClientDelay finds it.
type sendOnce struct{ http.RoundTripper }

func (s sendOnce) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := s.RoundTripper.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	after, numeric := strconv.Atoi(resp.Header.Get("Retry-After"))
	resp.Header.Del("Retry-After")
	if resp.StatusCode == http.StatusTooManyRequests && numeric == nil && after > 0 {
		if err := tellDelay(resp, int32(min(after, math.MaxInt32))); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// maxRefusal bounds how much of an answer is read here.
const maxRefusal = 64 << 10

// tellDelay replaces the answer's body by a Status that carries the delay.
func tellDelay(resp *http.Response, seconds int32) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("reading a 429's body: %w", err)
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) != nil || status.Reason == "" {
		status = metav1.Status{Message: strings.ToValidUTF8(string(body), "?"), Reason: metav1.StatusReasonTooManyRequests}
	}
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	status.Status, status.Code = metav1.StatusFailure, http.StatusTooManyRequests
	if status.Details == nil {
		status.Details = &metav1.StatusDetails{}
	}
	status.Details.RetryAfterSeconds = seconds
	body, err = json.Marshal(status)
	if err != nil {
		return fmt.Errorf("a 429's status: %w", err)
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Type", "application/json")
	resp.Header.Del("Content-Length")
	return nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (s sendOnce) WrappedRoundTripper() http.RoundTripper { return s.RoundTripper }
