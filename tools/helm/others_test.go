package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/tests/cluster"
)

const (
	sharedLock = "istio-namespace-controller-election"
	bundle     = "istio-ca-root-cert"
)

// candidate is a Pod with the token of a service account.
type candidate struct {
	p    place
	name string
	kube kubernetes.Interface
}

func (p place) candidate(t *testing.T, name, account string, rules ...rbacv1.PolicyRule) candidate {
	t.Helper()
	config := p.Identity(t, cluster.IdentityOptions{Namespace: p.namespace, PodName: name, ServiceAccount: account, Rules: rules})
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return candidate{p, name, client}
}

// record writes the record of the lock, as istiod and incumbent do.
func (c candidate) record(ctx context.Context, holder, key string, transitions int, options ...metav1.UpdateOptions) error {
	now := time.Now().UTC().Format(time.RFC3339)
	text := fmt.Sprintf(`{"holderIdentity":%q,"holderKey":%q,"leaseDurationSeconds":30,"acquireTime":%q,"renewTime":%q,"leaderTransitions":%d}`, holder, key, now, now, transitions)
	locks := c.kube.CoreV1().ConfigMaps(c.p.namespace)
	lock, err := locks.Get(ctx, sharedLock, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lock = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: sharedLock, Annotations: map[string]string{"control-plane.alpha.kubernetes.io/leader": text}}}
		_, err = locks.Create(ctx, lock, metav1.CreateOptions{})
		return err
	}
	if err != nil {
		return err
	}
	lock.Annotations["control-plane.alpha.kubernetes.io/leader"] = text
	_, err = locks.Update(ctx, lock, append(options, metav1.UpdateOptions{})[0])
	return err
}

// dry tries to acquire the lock with a dry run.
func (c candidate) dry(ctx context.Context, transitions int) error {
	return c.record(ctx, c.name, c.name, transitions, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
}

// write writes a guarded object.
func (c candidate) write(ctx context.Context) error {
	body := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"by":%q}}`, bundle, c.name)
	force := true
	_, err := c.kube.CoreV1().ConfigMaps(c.p.namespace).Patch(ctx, bundle, types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: c.name, Force: &force})
	return err
}

// becomes waits until the request fails with word, or succeeds if word is empty. The fence reads locks and policies
// with a delay.
func becomes(t *testing.T, what string, word string, request func(context.Context) error) {
	t.Helper()
	eventually(t, what, func(ctx context.Context) (bool, string) {
		err := request(ctx)
		if word == "" {
			return err == nil, fmt.Sprint(err)
		}
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), word), fmt.Sprint(err)
	})
}

// An account in fence.others can acquire the lock. The fence then rejects the writes of the chart's Pods until one of
// them holds the lock again.
func TestFenceOthers(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	ctx := t.Context()
	release := func(verb string, more ...string) {
		t.Helper()
		p.mustHelm(t, pilot(verb, "stable", append(more, "--set", "replicas=0")...)...)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	release("install")
	ours, second := p.candidate(t, "ours", "pilot-stable"), p.candidate(t, "second", "pilot-stable")
	istiod := p.candidate(t, "theirs", "istiod", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update", "patch"}})
	must(ours.record(ctx, ours.name, "stable", 0))
	const notLeader = "is not the leader"
	becomes(t, "a Pod without the lock cannot write", notLeader, second.write)
	becomes(t, "the holder writes", "", ours.write)
	takes := func(ctx context.Context) error { return istiod.dry(ctx, 1) }
	becomes(t, "another account cannot acquire the lock", "", func(ctx context.Context) error {
		if err := takes(ctx); !apierrors.IsForbidden(err) {
			return fmt.Errorf("response %w", errors.Join(err, errors.New("want Forbidden")))
		}
		return nil
	})

	release("upgrade", "--set", "fence.others={"+p.namespace+"/istiod}")
	becomes(t, "the declared account can acquire the lock", "", takes)
	must(istiod.record(ctx, istiod.name, "default", 1))
	becomes(t, "the former holder cannot write", notLeader, ours.write)
	if err := second.write(ctx); !apierrors.IsForbidden(err) {
		t.Errorf("another Pod of the chart: %v", err)
	}
	must(istiod.write(ctx)) // the fence does not apply to its account
	must(istiod.record(ctx, "", "", 1))
	must(ours.record(ctx, ours.name, "stable", 2))
	becomes(t, "the new holder writes", "", ours.write)
	if err := second.write(ctx); !apierrors.IsForbidden(err) {
		t.Errorf("another Pod of the chart, at the end: %v", err)
	}

	release("upgrade")
	becomes(t, "the removed account cannot acquire the lock", "", func(ctx context.Context) error {
		if err := istiod.dry(ctx, 3); !apierrors.IsForbidden(err) {
			return fmt.Errorf("response %w", errors.Join(err, errors.New("want Forbidden")))
		}
		return nil
	})
}
