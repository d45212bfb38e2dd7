package main

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"incumbent.dev/incumbent/internal/inspect"
	"incumbent.dev/incumbent/internal/tagging"
	"incumbent.dev/incumbent/tests/cluster/node"
	"incumbent.dev/incumbent/tests/upgrade/rollout"
)

// replica is the state of a Pod of the control plane.
type replica struct {
	revision, address, ready string
	restarts                 int
}

// view is the state of the cluster at one moment.
type view struct {
	defaultRevision string
	elections       map[string]inspect.Election
	replicas        map[string]replica
	// gateway is the URL of the Gateway, answeredBy the Pod that responded there, ingress the address of the Ingress.
	gateway, answeredBy, ingress string
}

// look reads the state of the cluster from the API server, and sends a request through the Gateway.
func look(ctx context.Context, client kubernetes.Interface, pods []node.Pod, gateway string) (view, error) {
	v := view{elections: map[string]inspect.Election{}, replicas: map[string]replica{}, gateway: gateway}
	all := metav1.ListOptions{}
	configMaps, err := client.CoreV1().ConfigMaps(rollout.Namespace).List(ctx, all)
	if err != nil {
		return v, err
	}
	for i := range configMaps.Items {
		if lock, ok := inspect.FromConfigMap(&configMaps.Items[i].ObjectMeta); ok {
			v.elections[lock.Name] = inspect.Of(lock)
		}
	}
	leases, err := client.CoordinationV1().Leases(rollout.Namespace).List(ctx, all)
	if err != nil {
		return v, err
	}
	for i := range leases.Items {
		if lock, ok := inspect.FromLease(&leases.Items[i]); ok {
			v.elections[lock.Name] = inspect.Of(lock)
		}
	}
	replicas, err := client.CoreV1().Pods(rollout.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app=pilot"})
	if err != nil {
		return v, err
	}
	for i := range replicas.Items {
		v.replicas[replicas.Items[i].Name] = replicaOf(&replicas.Items[i], pods)
	}
	if tag, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, tagging.DefaultTagWebhook(rollout.Namespace), metav1.GetOptions{}); err == nil {
		v.defaultRevision = tagging.DefaultRevision(rollout.Namespace, tag)
	}
	if ingress, err := client.NetworkingV1().Ingresses(rollout.Shop).Get(ctx, "web-1", metav1.GetOptions{}); err == nil {
		for _, address := range ingress.Status.LoadBalancer.Ingress {
			v.ingress = address.IP
		}
	}
	v.answeredBy = answer(ctx, gateway)
	return v, nil
}

func replicaOf(pod *corev1.Pod, pods []node.Pod) replica {
	r := replica{revision: pod.Labels[tagging.Label], ready: "no"}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			r.ready = "yes"
		}
	}
	if pod.DeletionTimestamp != nil {
		r.ready = "terminating"
	}
	for _, process := range pods {
		if process.UID == pod.UID {
			r.address = process.Address
			r.restarts = process.Restarts
		}
	}
	return r
}

// answer returns the Pod that responds at the URL, or "".
func answer(ctx context.Context, url string) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	return response.Header.Get("X-Gateway-Pod")
}

// table returns the view as a table that fits into 80 columns.
func (v view) table() []string {
	rows := [][]string{{"ELECTION", "HOLDER", "SINCE"}}
	for _, name := range slices.Sorted(maps.Keys(v.elections)) {
		e := v.elections[name]
		switch {
		case e.State == inspect.Unreadable:
			rows = append(rows, []string{name, "(unreadable record)"})
		case e.Holder == "":
			rows = append(rows, []string{name, "(free)"})
		default:
			rows = append(rows, []string{name, e.Holder, e.Since.Local().Format("15:04:05")})
		}
	}
	lines := append(columns(rows), "")
	title := "POD (no default revision)"
	if v.defaultRevision != "" {
		title = "POD (default revision: " + v.defaultRevision + ")"
	}
	rows = [][]string{{title, "REVISION", "READY", "RESTARTS", "ADDRESS"}}
	for _, name := range slices.Sorted(maps.Keys(v.replicas)) {
		r := v.replicas[name]
		rows = append(rows, []string{name, r.revision, r.ready, strconv.Itoa(r.restarts), r.address})
	}
	lines = append(append(lines, columns(rows)...), "")
	name := rollout.Shop + "/web-1"
	rows = [][]string{{"SAMPLE", "ADDRESS"}, {"Gateway " + name, v.gateway}, {"Ingress " + name, v.ingress}}
	if v.answeredBy != "" {
		rows[0] = append(rows[0], "ANSWERED BY")
		rows[1] = append(rows[1], v.answeredBy)
	}
	return append(lines, columns(rows)...)
}

// changes returns a line for each difference between two views.
func changes(before, after view) (lines []string) {
	if before.defaultRevision != after.defaultRevision {
		lines = append(lines, fmt.Sprintf("the default revision is %q", after.defaultRevision))
	}
	for _, name := range slices.Sorted(maps.Keys(after.elections)) {
		was, is := before.elections[name], after.elections[name]
		switch {
		case is.State == inspect.Unreadable && was.State != inspect.Unreadable:
			lines = append(lines, "the record of "+name+" is unreadable")
		case is.Holder != was.Holder && is.Holder == "":
			lines = append(lines, was.Holder+" released "+name)
		case is.Holder != "" && (is.Holder != was.Holder || !is.Since.Equal(was.Since)):
			lines = append(lines, is.Holder+" leads "+name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before.elections)) {
		if _, exists := after.elections[name]; !exists {
			lines = append(lines, "the lock "+name+" was deleted")
		}
	}
	return lines
}

// pageURL returns the URL of a replica's elections page.
func pageURL(address string) string {
	return "http://" + net.JoinHostPort(address, strconv.Itoa(rollout.PagePort)) + "/debug/elections"
}
