package coordinated

import (
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
)

// Validation rejects everything that the API server rejects.
func TestPublisherConfig_Invalid(t *testing.T) {
	w := newWorld(t)
	candidates := w.admin.Kube().CoordinationV1beta1()
	valid := coordination.PublisherConfig{
		CandidateConfig: coordination.CandidateConfig{BinaryVersion: "1.2.0", EmulationVersion: "1.1.0", Strategy: coordination.DefaultRevision},
		Client:          w.admin.Kube(), Namespace: w.home, Lease: "istio-leader", Pod: "pod-a",
	}
	for want, change := range map[string]func(*coordination.PublisherConfig){
		"Client is required":    func(c *coordination.PublisherConfig) { c.Client = nil },
		`namespace "A"`:         func(c *coordination.PublisherConfig) { c.Namespace = "A" },
		`lease ""`:              func(c *coordination.PublisherConfig) { c.Lease = "" },
		`pod "a/b"`:             func(c *coordination.PublisherConfig) { c.Pod = "a/b" },
		`name "aaaa`:            func(c *coordination.PublisherConfig) { c.Pod = strings.Repeat("a", 245) },
		`label "a b"`:           func(c *coordination.PublisherConfig) { c.Labels = map[string]string{"a b": "c"} },
		`label a "b c"`:         func(c *coordination.PublisherConfig) { c.Labels = map[string]string{"a": "b c"} },
		`strategy ""`:           func(c *coordination.PublisherConfig) { c.Strategy = "" },
		`strategy "Oldest"`:     func(c *coordination.PublisherConfig) { c.Strategy = "Oldest" },
		`strategy "a/"`:         func(c *coordination.PublisherConfig) { c.Strategy = "a/" },
		"use 1.2.0":             func(c *coordination.PublisherConfig) { c.BinaryVersion = "v1.2.0" },
		`version "1.2"`:         func(c *coordination.PublisherConfig) { c.BinaryVersion = "1.2" },
		`version ""`:            func(c *coordination.PublisherConfig) { c.BinaryVersion = "" },
		`version "01.2.0"`:      func(c *coordination.PublisherConfig) { c.BinaryVersion = "01.2.0" },
		`version "1.2.0 "`:      func(c *coordination.PublisherConfig) { c.EmulationVersion = "1.2.0 " },
		"is higher than binary": func(c *coordination.PublisherConfig) { c.EmulationVersion = "1.2.1" },
		"requires a version above 0.0.0": func(c *coordination.PublisherConfig) {
			c.EmulationVersion = "0.0.0"
			c.Strategy = coordination.OldestEmulationVersion
		},
	} {
		cfg := valid
		change(&cfg)
		if _, err := coordination.NewPublisher(cfg); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "candidate ") {
			t.Errorf("%s: %v", want, err)
		}
		if want == "Client is required" || cfg.Namespace == "A" {
			continue
		}
		// The API server does not check leaseName.
		object := &coordinationv1beta1.LeaseCandidate{
			ObjectMeta: metav1.ObjectMeta{Name: coordination.CandidateName(cfg.Pod, cfg.Lease), Labels: cfg.Labels},
			Spec: coordinationv1beta1.LeaseCandidateSpec{
				LeaseName: cfg.Lease, BinaryVersion: cfg.BinaryVersion, EmulationVersion: cfg.EmulationVersion,
				Strategy: coordinationv1.CoordinatedLeaseStrategy(cfg.Strategy),
			},
		}
		_, err := candidates.LeaseCandidates(cfg.Namespace).Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			t.Errorf("%s: the API server accepts it", want)
		}
	}
	if _, err := coordination.NewPublisher(valid); err != nil {
		t.Error(err)
	}
}
