package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"incumbent.dev/incumbent/internal/apirequest"
	"incumbent.dev/incumbent/tests/cluster"
)

// eager is the interval of readiness probes until the first success. A kubelet would wait a whole period.
const eager = 100 * time.Millisecond

// probe runs the readiness probe until ctx ends. It ignores the initial delay.
func (w *worker) probe(ctx context.Context, address string) {
	container := w.latest.Load().Spec.Containers[0]
	if container.ReadinessProbe == nil {
		w.setReady(true, "")
		return
	}
	probe := container.ReadinessProbe
	ask := asker(probe, container, address)
	wait, failures := eager, 0
	for {
		err := ask(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			wait, failures = seconds(probe.PeriodSeconds), 0
			w.setReady(true, "")
		default:
			failures++
			if wait == eager || failures >= int(max(1, probe.FailureThreshold)) {
				w.setReady(false, err.Error())
			}
		}
		if apirequest.Pause(ctx, wait) != nil {
			return
		}
	}
}

// watchLife runs the liveness probe. It returns an error when the failure threshold is reached, and nil when ctx ends.
func (w *worker) watchLife(ctx context.Context, address string) error {
	container := w.latest.Load().Spec.Containers[0]
	if container.LivenessProbe == nil {
		<-ctx.Done()
		return nil
	}
	probe := container.LivenessProbe
	ask := asker(probe, container, address)
	failures := 0
	for wait := time.Duration(probe.InitialDelaySeconds) * time.Second; apirequest.Pause(ctx, wait) == nil; wait = seconds(probe.PeriodSeconds) {
		err := ask(ctx)
		if err == nil {
			failures = 0
			continue
		}
		if failures++; ctx.Err() == nil && failures >= int(max(1, probe.FailureThreshold)) {
			return fmt.Errorf("liveness probe failed %d times in a row: %w", failures, err)
		}
	}
	return nil
}

// seconds returns n seconds, at least one.
func seconds(n int32) time.Duration { return time.Duration(max(1, n)) * time.Second }

func (w *worker) setReady(ready bool, why string) {
	w.show(func(view *Pod) { view.Ready = ready })
	w.status.ready(ready, why)
}

// asker returns a function that probes once.
func asker(probe *corev1.Probe, container corev1.Container, address string) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // as a kubelet does
	}}
	get := cluster.Healthy(client, probeURL(container, probe.HTTPGet, address))
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, seconds(probe.TimeoutSeconds))
		defer cancel()
		return get(ctx)
	}
}

func probeURL(container corev1.Container, get *corev1.HTTPGetAction, address string) string {
	host := cmp.Or(get.Host, address)
	scheme := strings.ToLower(cmp.Or(string(get.Scheme), "http"))
	return fmt.Sprintf("%s://%s/%s", scheme,
		net.JoinHostPort(host, portOf(container, get.Port)), strings.TrimPrefix(get.Path, "/"))
}

// portOf returns the number of a port or port name.
func portOf(container corev1.Container, port intstr.IntOrString) string {
	if port.Type == intstr.Int {
		return strconv.Itoa(port.IntValue())
	}
	for _, named := range container.Ports {
		if named.Name == port.StrVal {
			return strconv.Itoa(int(named.ContainerPort))
		}
	}
	return port.StrVal
}
