package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	gateway "sigs.k8s.io/gateway-api/apis/v1"
	gatewayclient "sigs.k8s.io/gateway-api/pkg/client/clientset/versioned/typed/apis/v1"

	"incumbent.dev/incumbent/tests/cluster/balancer"
)

// The sample is what the other three controllers have to do: an Ingress, and a Gateway with a route. A cluster
// that was there before gets none: it has load balancers and gateways of its own.
const (
	sampleNamespace, sampleName = "shop", "web"
	samplePort                  = 8080
	// ingressGateway is the Service whose address Ingresses get, by the server's own default.
	ingressGateway = "istio-ingressgateway"
	ingressClass   = "istio"
	// anyProxy is what the template calls the proxy's image, and what its Pods run is a stand-in for.
	anyProxy = "auto"
	// sampleInterval is how often the sample is looked at, sampleLimit how long one look may take.
	sampleInterval, sampleLimit = time.Second, 5 * time.Second
	// headerTimeout bounds the wait for the header of a request to the backend.
	headerTimeout = 10 * time.Second
	// podHeader is where the stand-in says which Pod it is.
	podHeader = "X-Gateway-Pod"
)

// sampled is how the sample stands, as users see it.
type sampled struct {
	// gateway is where the Gateway is reached, pod which Pod has answered there, revision who deployed that; each is ""
	// while it is not so. missing says what is missing.
	gateway, pod, revision, missing string
	// ingress is the address in the status of the Ingress.
	ingress string
}

// startSample starts what the sample needs of a cluster: the kinds, a load balancer, and the backend.
func (s *stage) startSample(ctx context.Context) error {
	if s.cluster.External() {
		return nil
	}
	if err := s.cluster.LoadGatewayAPI(ctx); err != nil {
		return err
	}
	var err error
	if s.gateways, err = gatewayclient.NewForConfig(s.cluster.Admin()); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	balance, err := balancer.New(balancer.Options{Config: s.cluster.Admin()})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listening for the sample's backend: %w", err)
	}
	s.backend = "http://" + listener.Addr().String()
	server := &http.Server{ReadHeaderTimeout: headerTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "hello from the backend, %s\n", r.URL.Path)
	})}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stopWatching = both(s.stopWatching, func() { stop(); _ = server.Close() })
	s.watchers.Go(func() {
		if err := balance.Run(ctx); err != nil {
			s.abandon(broken{fmt.Errorf("the load balancer has ended: %w", err)})
		}
	})
	s.watchers.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.abandon(broken{fmt.Errorf("the sample's backend has ended: %w", err)})
		}
	})
	return nil
}

// putSample puts its objects into the cluster.
func (s *stage) putSample(ctx context.Context) error {
	if s.cluster.External() {
		return nil
	}
	meta := metav1.ObjectMeta{Namespace: sampleNamespace, Name: sampleName}
	// The stand-in knows no routes: where requests go to is an overlay's to say.
	overlay := fmt.Sprintf("spec: {template: {spec: {containers: [{name: istio-proxy, env: [{name: BACKEND, value: %q}]}]}}}", s.backend)
	front := metav1.ObjectMeta{Namespace: systemNamespace, Name: ingressGateway}
	return s.objects.make(ctx,
		namespaceObject(sampleNamespace),
		&corev1.Service{TypeMeta: core("Service"), ObjectMeta: front, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: samplePort}},
		}},
		&networkingv1.IngressClass{
			TypeMeta: networkingKind("IngressClass"), ObjectMeta: metav1.ObjectMeta{Name: ingressClass},
			Spec: networkingv1.IngressClassSpec{Controller: "istio.io/ingress-controller"},
		},
		ingressObject(sampleNamespace),
		&corev1.Service{TypeMeta: core("Service"), ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: samplePort}}}},
		&corev1.ConfigMap{TypeMeta: core("ConfigMap"), ObjectMeta: meta, Data: map[string]string{"deployment": overlay}},
		&gateway.Gateway{TypeMeta: gatewayKind("Gateway"), ObjectMeta: meta, Spec: gateway.GatewaySpec{
			GatewayClassName: "istio",
			Listeners:        []gateway.Listener{{Name: "http", Port: samplePort, Protocol: gateway.HTTPProtocolType}},
			Infrastructure:   &gateway.GatewayInfrastructure{ParametersRef: &gateway.LocalParametersReference{Kind: "ConfigMap", Name: sampleName}},
		}},
		routeObject(meta),
	)
}

func core(name string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: name} }

func gatewayKind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: gateway.GroupVersion.String(), Kind: name}
}

func networkingKind(name string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: networkingv1.SchemeGroupVersion.String(), Kind: name}
}

func routeObject(meta metav1.ObjectMeta) runtime.Object {
	port := gateway.PortNumber(samplePort)
	backend := gateway.HTTPBackendRef{BackendRef: gateway.BackendRef{BackendObjectReference: gateway.BackendObjectReference{Name: sampleName, Port: &port}}}
	return &gateway.HTTPRoute{TypeMeta: gatewayKind("HTTPRoute"), ObjectMeta: meta, Spec: gateway.HTTPRouteSpec{
		CommonRouteSpec: gateway.CommonRouteSpec{ParentRefs: []gateway.ParentReference{{Name: sampleName}}},
		Rules:           []gateway.HTTPRouteRule{{BackendRefs: []gateway.HTTPBackendRef{backend}}},
	}}
}

// ingressObject is an Ingress of the server's class.
func ingressObject(namespace string) *networkingv1.Ingress {
	class := ingressClass
	return &networkingv1.Ingress{
		TypeMeta: networkingKind("Ingress"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: sampleName},
		Spec: networkingv1.IngressSpec{IngressClassName: &class, DefaultBackend: &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{
			Name: sampleName, Port: networkingv1.ServiceBackendPort{Number: samplePort},
		}}},
	}
}

// sampleNow asks for all of the sample, and sends a request through its Gateway.
func (s *stage) sampleNow(ctx context.Context) (now sampled) {
	ctx, cancel := context.WithTimeout(ctx, sampleLimit)
	defer cancel()
	now.ingress, _ = s.ingressAddress(ctx, sampleNamespace)
	g, err := s.gateways.Gateways(sampleNamespace).Get(ctx, sampleName, metav1.GetOptions{})
	if err != nil {
		now.missing = "it cannot be read"
		return now
	}
	route, err := s.gateways.HTTPRoutes(sampleNamespace).Get(ctx, sampleName, metav1.GetOptions{})
	if err != nil {
		now.missing = "its route cannot be read"
		return now
	}
	if now.missing = unserved(g, route); now.missing != "" {
		return now
	}
	now.gateway = net.JoinHostPort(g.Status.Addresses[0].Value, strconv.Itoa(samplePort))
	if now.pod, err = podBehind(ctx, "http://"+now.gateway+"/hello"); err != nil {
		now.missing = "it does not answer"
		return now
	}
	if pod, err := s.kube.CoreV1().Pods(sampleNamespace).Get(ctx, now.pod, metav1.GetOptions{}); err == nil {
		now.revision = pod.Annotations[revisionLabel]
	}
	return now
}

// unserved says what of the status of a Gateway and its route is missing, "" when nothing is.
func unserved(g *gateway.Gateway, route *gateway.HTTPRoute) string {
	if programmed := meta.FindStatusCondition(g.Status.Conditions, string(gateway.GatewayConditionProgrammed)); programmed == nil ||
		programmed.Status != metav1.ConditionTrue || programmed.ObservedGeneration != g.Generation || len(g.Status.Addresses) == 0 {
		return "it is not programmed yet"
	}
	for _, parent := range route.Status.Parents {
		if meta.IsStatusConditionTrue(parent.Conditions, string(gateway.RouteConditionAccepted)) {
			return ""
		}
	}
	return "its route is not accepted yet"
}

// podBehind is the Pod that answers with success at an address.
func podBehind(ctx context.Context, address string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return "", err
	}
	request.Close = true // no connection is left behind
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s", address, response.Status)
	}
	return response.Header.Get(podHeader), nil
}

// ingressAddress is the address in the status of a namespace's Ingress, "" while there is none.
func (s *stage) ingressAddress(ctx context.Context, namespace string) (string, error) {
	ingress, err := s.kube.NetworkingV1().Ingresses(namespace).Get(ctx, sampleName, metav1.GetOptions{})
	if err != nil || len(ingress.Status.LoadBalancer.Ingress) == 0 {
		return "", err
	}
	return ingress.Status.LoadBalancer.Ingress[0].IP, nil
}

// askSample looks at the sample now and then, until ctx ends.
func (s *stage) askSample(ctx context.Context) {
	if s.gateways == nil {
		return
	}
	ticker := time.NewTicker(sampleInterval)
	defer ticker.Stop()
	for {
		if now := s.sampleNow(ctx); ctx.Err() == nil {
			s.watched.sample(now)
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sampleRows show the sample in the table.
func sampleRows(now sampled) [][]string {
	if now == (sampled{}) {
		return nil
	}
	gateway := []string{"Gateway " + sampleNamespace + "/" + sampleName, "http://" + now.gateway, now.pod}
	if now.missing != "" {
		gateway[1], gateway[2] = "", now.missing
	}
	ingress := []string{"Ingress " + sampleNamespace + "/" + sampleName, now.ingress, ""}
	if now.ingress == "" {
		ingress[1] = "none yet"
	}
	return [][]string{{"SAMPLE", "ADDRESS", "ANSWERED BY"}, gateway, ingress}
}

// lacks is what is not as it should be when a revision is the default one.
func (now sampled) lacks(revision string) (missing []string) {
	if now.missing != "" {
		missing = append(missing, "the Gateway: "+now.missing)
	}
	if now.revision != revision {
		missing = append(missing, fmt.Sprintf("the Gateway is answered by a Pod of %q, not of %s", now.revision, revision))
	}
	if now.ingress == "" {
		missing = append(missing, "the Ingress has no address")
	}
	return missing
}

// awaitSample waits until the sample stands: the Ingress has the address of the gateway's Service, and the
// Gateway is of a revision, programmed, and answers with its route.
func (d *demo) awaitSample(ctx context.Context, revision string) error {
	if d.gateways == nil {
		return nil
	}
	var now sampled
	var missing []string
	began := time.Now()
	err := d.watched.await(ctx, 10*recheck, func(view) (bool, string) {
		if found := d.sampleNow(ctx); ctx.Err() == nil { // else it is about the questions that were cut off
			now, missing = found, found.lacks(revision)
		}
		return ctx.Err() == nil && len(missing) == 0, strings.Join(missing, "; ")
	})
	if err != nil {
		return err
	}
	if now.pod != d.answering {
		d.answering = now.pod
		d.line("the Gateway, deployed by %s, answers at http://%s through %s after %s; the Ingress has %s",
			revision, now.gateway, now.pod, round(time.Since(began)), now.ingress)
	}
	return nil
}

// proveIngress has whoever leads the ingress controller's election write a status into a fresh namespace.
func (d *demo) proveIngress(ctx context.Context, fresh string) error {
	if d.gateways == nil {
		return nil
	}
	if err := d.objects.make(ctx, ingressObject(fresh)); err != nil {
		return err
	}
	return d.watched.await(ctx, recheck, func(view) (bool, string) {
		address, err := d.ingressAddress(ctx, fresh)
		return err == nil && address != "", "the Ingress in " + fresh + " has no address"
	})
}
