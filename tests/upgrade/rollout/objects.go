package rollout

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/tests/upgrade/workload"
)

// Shop is the namespace of the Gateways that receive requests.
const Shop = "shop"

// apply applies objects by server-side apply.
func (r *Rollout) apply(ctx context.Context, objects ...runtime.Object) error {
	all := corev1.List{TypeMeta: core("List")}
	for _, object := range objects {
		all.Items = append(all.Items, runtime.RawExtension{Object: object})
	}
	text, err := json.Marshal(all)
	if err != nil {
		return fmt.Errorf("encode objects: %w", err)
	}
	// kubectl would require fields in an empty status.
	_, err = r.Kubectl(ctx, text, "apply", "--server-side", "--force-conflicts", "--validate=false", "--filename=-")
	return err
}

func core(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }

func namespaceObject(name string) *corev1.Namespace {
	return &corev1.Namespace{TypeMeta: core("Namespace"), ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// putObjects creates the objects that the control plane works on.
func (r *Rollout) putObjects(ctx context.Context) error {
	front := &corev1.Service{
		TypeMeta: core("Service"), ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "istio-ingressgateway"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "http", Port: workload.Port, Protocol: corev1.ProtocolTCP}}},
	}
	class := &networkingv1.IngressClass{
		TypeMeta:   metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: "IngressClass"},
		ObjectMeta: metav1.ObjectMeta{Name: "istio"}, Spec: networkingv1.IngressClassSpec{Controller: "istio.io/ingress-controller"},
	}
	if err := r.apply(ctx, namespaceObject(Namespace), namespaceObject(Shop), front, class); err != nil {
		return err
	}
	// The overlay makes the proxies drain.
	overlay := fmt.Sprintf(`spec: {replicas: 2, template: {spec: {terminationGracePeriodSeconds: %d, `+
		`containers: [{name: istio-proxy, env: [{name: LINGER, value: %q}]}]}}}`,
		int(grace.Seconds()), linger)
	for n := range r.options.Gateways {
		at := metav1.ObjectMeta{Namespace: Shop, Name: fmt.Sprint("web-", n+1)}
		if err := r.apply(ctx,
			&corev1.ConfigMap{TypeMeta: core("ConfigMap"), ObjectMeta: at, Data: map[string]string{"deployment": overlay}},
			workload.Ingress(at),
		); err != nil {
			return err
		}
		if r.options.WithoutGateways {
			continue
		}
		if err := r.apply(ctx, workload.Gateway(at, at.Name), workload.Route(at, at.Name)); err != nil {
			return err
		}
	}
	return r.Await(ctx, "the ingress gateway's Service has an address", func(ctx context.Context) (bool, error) {
		service, err := r.Kube.CoreV1().Services(Namespace).Get(ctx, front.Name, metav1.GetOptions{})
		if err != nil || len(service.Status.LoadBalancer.Ingress) == 0 {
			return false, err
		}
		r.address = service.Status.LoadBalancer.Ingress[0].IP
		return true, nil
	})
}

// Serve creates a namespace with a Gateway and waits until the Gateway is programmed.
func (r *Rollout) Serve(ctx context.Context, name string) error {
	at := metav1.ObjectMeta{Namespace: name, Name: name}
	if err := r.apply(ctx, namespaceObject(name), workload.Gateway(at, "")); err != nil {
		return err
	}
	return r.Await(ctx, "Gateway "+name+" is programmed", func(ctx context.Context) (bool, error) {
		g, err := r.gateways.Gateways(name).Get(ctx, name, metav1.GetOptions{})
		return err == nil && meta.IsStatusConditionTrue(g.Status.Conditions, string(gateway.GatewayConditionProgrammed)), err
	})
}

// AwaitGateways waits until each Gateway is programmed and has two available Pods. It returns the URLs.
func (r *Rollout) AwaitGateways(ctx context.Context) (urls []string, err error) {
	err = r.Await(ctx, "the Gateways are programmed", func(ctx context.Context) (bool, error) {
		urls = nil
		all, err := r.gateways.Gateways(Shop).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, g := range all.Items {
			d, err := r.Kube.AppsV1().Deployments(Shop).Get(ctx, g.Name+"-istio", metav1.GetOptions{})
			if err != nil || d.Status.AvailableReplicas < 2 ||
				!meta.IsStatusConditionTrue(g.Status.Conditions, string(gateway.GatewayConditionProgrammed)) || len(g.Status.Addresses) == 0 {
				return false, err
			}
			urls = append(urls, "http://"+net.JoinHostPort(g.Status.Addresses[0].Value, strconv.Itoa(workload.Port)))
		}
		return len(urls) == r.options.Gateways, nil
	})
	return urls, err
}
