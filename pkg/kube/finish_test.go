package kube

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A write goes on when its context ends, for a while; a read does not.
func TestFinishedWrites(t *testing.T) {
	for name, test := range map[string]struct {
		answersAfter time.Duration
		read         bool
		want         error
		took         time.Duration
	}{
		"write answered later":   {answersAfter: 3 * time.Second, took: 3 * time.Second},
		"write never answered":   {answersAfter: time.Hour, want: context.DeadlineExceeded, took: 5 * time.Second},
		"read ends with context": {answersAfter: 3 * time.Second, read: true, want: context.Canceled, took: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := roundTripper(func(req *http.Request) (*http.Response, error) {
					timer := time.NewTimer(test.answersAfter)
					defer timer.Stop()
					select {
					case <-timer.C:
						return &http.Response{
							StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
							Body: io.NopCloser(strings.NewReader(`{"kind":"ConfigMap","apiVersion":"v1"}`)),
						}, nil
					case <-req.Context().Done():
						return nil, req.Context().Err()
					}
				})
				c, err := NewClient(&rest.Config{Host: "http://127.0.0.1:1"}, WithRateLimit(-1, 0),
					WithWrapTransport(func(http.RoundTripper) http.RoundTripper { return server }),
					WithFinishedWrites(5*time.Second))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(time.Second, cancel)
				began := time.Now()
				maps := c.Kube().CoreV1().ConfigMaps("a")
				if test.read {
					_, err = maps.Get(ctx, "b", metav1.GetOptions{})
				} else {
					_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "b"}}, metav1.CreateOptions{})
				}
				if !errors.Is(err, test.want) || time.Since(began) != test.took {
					t.Errorf("after %v: %v; want %v after %v", time.Since(began), err, test.want, test.took)
				}
				if _, err := maps.Create(ctx, &corev1.ConfigMap{}, metav1.CreateOptions{}); !errors.Is(err, context.Canceled) {
					t.Errorf("a write whose context had ended before: %v", err)
				}
			})
		})
	}
}
