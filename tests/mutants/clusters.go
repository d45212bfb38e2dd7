package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
)

// Kinds of clusters that stay up while one mutant after the other is tried: starting one costs
// more than most of the tests on it.
const (
	bare = "bare" // without controllers
	full = "full"
)

var clusterOptions = map[string]cluster.Options{bare: {WithoutControllers: true}, full: {}}

// sharedClusters are those that are up, by their kinds. A cluster in which a test failed, or
// left behind what concerns everyone, is replaced: the next mutant is to meet what the tests
// met without any.
type sharedClusters struct {
	mu   sync.Mutex
	up   map[string]*cluster.Cluster
	used int // how many were started
}

// environment leads a suite's tests to its cluster.
func (s *sharedClusters) environment(ctx context.Context, kind string) ([]string, error) {
	if kind == "" {
		return nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.up[kind] == nil {
		c, err := cluster.Start(ctx, clusterOptions[kind])
		if err != nil {
			return nil, err
		}
		if s.up == nil {
			s.up = map[string]*cluster.Cluster{}
		}
		s.up[kind] = c
		s.used++
	}
	return []string{cluster.ExternalVariable + "=" + s.up[kind].Kubeconfig()}, nil
}

// after ends a cluster that was not left as it was.
func (s *sharedClusters) after(ctx context.Context, kind string, failed bool) error {
	if kind == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.up[kind]
	if c == nil {
		return nil
	}
	if !failed {
		left, err := leftBehind(ctx, c)
		if err == nil && left == 0 {
			return nil
		}
	}
	delete(s.up, kind)
	return c.Stop()
}

// leftBehind counts what judges everybody's requests.
func leftBehind(ctx context.Context, c *cluster.Cluster) (int, error) {
	client, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return 0, err
	}
	admission, all, left := client.AdmissionregistrationV1(), metav1.ListOptions{}, 0
	policies, err := admission.ValidatingAdmissionPolicies().List(ctx, all)
	if err != nil {
		return 0, err
	}
	left += len(policies.Items)
	bindings, err := admission.ValidatingAdmissionPolicyBindings().List(ctx, all)
	if err != nil {
		return 0, err
	}
	left += len(bindings.Items)
	mutating, err := admission.MutatingWebhookConfigurations().List(ctx, all)
	if err != nil {
		return 0, err
	}
	left += len(mutating.Items)
	validating, err := admission.ValidatingWebhookConfigurations().List(ctx, all)
	if err != nil {
		return 0, err
	}
	return left + len(validating.Items), nil
}

// end stops all clusters.
func (s *sharedClusters) end() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first error
	for _, kind := range slices.Sorted(maps.Keys(s.up)) {
		if err := s.up[kind].Stop(); err != nil && first == nil {
			first = fmt.Errorf("the shared cluster: %w", err)
		}
	}
	s.up = nil
	return first
}
