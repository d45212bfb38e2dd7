package coordinated

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	coordinationv1beta1 "k8s.io/api/coordination/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"incumbent.dev/incumbent/internal/testutil/harness"
	"incumbent.dev/incumbent/pilot/leaderelection/coordination"
	"incumbent.dev/incumbent/tests/cluster"
)

// published is a Publisher with the real API server.
type published struct {
	t      *testing.T
	client kubernetes.Interface
	cfg    coordination.PublisherConfig
	log    harness.Log
	end    func()
}

func clientOf(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func publish(t *testing.T) *published {
	t.Helper()
	c := cluster.Shared(t)
	p := &published{t: t, client: clientOf(t, c.Admin())}
	namespace := c.Namespace(t)
	// The garbage collector deletes an object whose owner does not exist.
	c.Identity(t, cluster.IdentityOptions{Namespace: namespace, PodName: "pod-a"})
	owner, err := p.client.CoreV1().Pods(namespace).Get(t.Context(), "pod-a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p.cfg = coordination.PublisherConfig{
		CandidateConfig: coordination.CandidateConfig{
			PodUID: owner.UID, BinaryVersion: "1.2.0", EmulationVersion: "1.1.0", Strategy: coordination.DefaultRevision,
			Labels: map[string]string{coordination.RevisionLabel: "canary"},
		},
		Client: p.client, Namespace: namespace, Lease: "istio-leader", Pod: owner.Name,
		Logger: slog.New(slog.NewTextHandler(&p.log, nil)),
	}
	return p
}

func (p *published) run() {
	p.t.Helper()
	publisher, err := coordination.NewPublisher(p.cfg)
	if err != nil {
		p.t.Fatal(err)
	}
	p.end = harness.Background(p.t, func(ctx context.Context) {
		if err := publisher.Run(ctx); err != nil {
			p.t.Error(err)
		}
	})
}

// see waits until the object satisfies is.
func (p *published) see(what string, is func(*coordinationv1beta1.LeaseCandidate) bool) (object *coordinationv1beta1.LeaseCandidate) {
	p.t.Helper()
	harness.Until(p.t, what, func() bool {
		var err error
		object, err = p.client.CoordinationV1beta1().LeaseCandidates(p.cfg.Namespace).Get(p.t.Context(), coordination.CandidateName(p.cfg.Pod, p.cfg.Lease), metav1.GetOptions{})
		return err == nil && is(object)
	})
	return object
}

func (p *published) change(object *coordinationv1beta1.LeaseCandidate, change func(*coordinationv1beta1.LeaseCandidate)) {
	p.t.Helper()
	object = object.DeepCopy()
	change(object)
	_, err := p.client.CoordinationV1beta1().LeaseCandidates(p.cfg.Namespace).Update(p.t.Context(), object, metav1.UpdateOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
}

func renewed(o *coordinationv1beta1.LeaseCandidate) bool { return o.Spec.RenewTime != nil }

func TestPublisher_AnswersPings(t *testing.T) {
	p := publish(t)
	p.run()
	o := p.see("published", renewed)
	if o.Name != "pod-a.istio-leader" || o.Spec.LeaseName != "istio-leader" || o.Spec.BinaryVersion != "1.2.0" || o.Spec.EmulationVersion != "1.1.0" ||
		string(o.Spec.Strategy) != coordination.DefaultRevision || o.Labels[coordination.RevisionLabel] != "canary" ||
		len(o.OwnerReferences) != 1 || o.OwnerReferences[0].Kind != "Pod" || o.OwnerReferences[0].Name != "pod-a" || o.OwnerReferences[0].UID != p.cfg.PodUID {
		t.Errorf("published: %+v", o)
	}
	// The clock of the coordinator may be wrong.
	for _, ahead := range []time.Duration{time.Microsecond, time.Second, time.Hour, -48 * time.Hour} {
		ping := metav1.NewMicroTime(o.Spec.RenewTime.Add(ahead).Truncate(time.Microsecond))
		former := o.Spec.RenewTime
		p.change(o, func(o *coordinationv1beta1.LeaseCandidate) {
			o.Spec.PingTime = &ping
			o.Labels[coordination.PriorityLabel] = "7"
		})
		o = p.see("answered", func(o *coordinationv1beta1.LeaseCandidate) bool {
			return !o.Spec.RenewTime.Equal(former) && !o.Spec.RenewTime.Before(&ping)
		})
		if !o.Spec.PingTime.Equal(&ping) || o.Labels[coordination.PriorityLabel] != "7" {
			t.Errorf("the answer changed other fields: %+v", o)
		}
	}
	objects := p.client.CoordinationV1beta1().LeaseCandidates(p.cfg.Namespace)
	if err := objects.Delete(t.Context(), o.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o = p.see("recreated", func(again *coordinationv1beta1.LeaseCandidate) bool { return again.UID != o.UID })
	p.end()
	// A process does not wait for a slow API server when it ends.
	slow := p.log.Count("failed to delete", "deadline exceeded") + p.log.Count("does not respond")
	if _, err := objects.Get(t.Context(), o.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) && slow == 0 {
		t.Errorf("after Run: %v, log:\n%s", err, p.log.String())
	}
}

// Validation rejects everything that the API server rejects.
func TestPublisherConfig_Invalid(t *testing.T) {
	p := publish(t)
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
		cfg := p.cfg
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
		_, err := p.client.CoordinationV1beta1().LeaseCandidates(cfg.Namespace).Create(t.Context(), object, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			t.Errorf("%s: the API server accepts it", want)
		}
	}
	if _, err := coordination.NewPublisher(p.cfg); err != nil {
		t.Error(err)
	}
}
