package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// eager is the wait between probes until the first that succeeds: a kubelet would wait a
// whole period, and a rollout here is watched by someone.
const eager = 100 * time.Millisecond

// probe asks for readiness as the container's readinessProbe says, until ctx ends. The
// initial delay is not kept: until the first success it asks ten times a second.
func (w *worker) probe(ctx context.Context, address string) {
	container := w.latest.Load().Spec.Containers[0]
	if container.ReadinessProbe == nil {
		w.setReady(true, "")
		return
	}
	probe := *container.ReadinessProbe
	ask, done := asker(container, address)
	defer done()
	timeout := time.Duration(max(1, probe.TimeoutSeconds)) * time.Second
	wait, failures := eager, 0
	for {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		err := ask(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			wait, failures = time.Duration(max(1, probe.PeriodSeconds))*time.Second, 0
			w.setReady(true, "")
		default:
			failures++
			if wait == eager || failures >= int(max(1, probe.FailureThreshold)) {
				w.setReady(false, err.Error())
			}
		}
		if !linger(ctx, wait) {
			return
		}
	}
}

func (w *worker) setReady(ready bool, why string) {
	w.show(func(view *Pod) { view.Ready = ready })
	w.status.ready(ready, why)
}

// asker is how to ask for readiness, and what to call in the end.
func asker(container corev1.Container, address string) (ask func(context.Context) error, done func()) {
	none := func() {}
	switch handler := container.ReadinessProbe.ProbeHandler; {
	case handler.HTTPGet != nil:
		// As a kubelet does, it trusts any certificate: it asks for life, not for truth.
		transport := &http.Transport{
			DisableKeepAlives: true,
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		}
		client := &http.Client{Transport: transport}
		url := probeURL(container, handler.HTTPGet, address)
		return func(ctx context.Context) error { return get(ctx, client, url) }, client.CloseIdleConnections
	case handler.TCPSocket != nil:
		target := net.JoinHostPort(address, portOf(container, handler.TCPSocket.Port))
		return func(ctx context.Context) error {
			connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", target)
			if err != nil {
				return err
			}
			return connection.Close()
		}, none
	default:
		return func(context.Context) error {
			return errors.New("a process node asks for readiness by httpGet or tcpSocket only")
		}, none
	}
}

func probeURL(container corev1.Container, get *corev1.HTTPGetAction, address string) string {
	host := orElse(get.Host, address)
	scheme := strings.ToLower(orElse(string(get.Scheme), "http"))
	return fmt.Sprintf("%s://%s/%s", scheme,
		net.JoinHostPort(host, portOf(container, get.Port)), strings.TrimPrefix(get.Path, "/"))
}

// portOf is the number of a port that may go by its name.
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

func get(ctx context.Context, client *http.Client, url string) (err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}
