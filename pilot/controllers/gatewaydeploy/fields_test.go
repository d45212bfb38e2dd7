package gatewaydeploy

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"incumbent.dev/incumbent/internal/testutil/harness"
)

// sample returns a value of a type. An object has an unknown field.
func sample(of reflect.Type) any {
	switch of.Kind() {
	case reflect.Pointer:
		return sample(of.Elem())
	case reflect.Slice:
		return []any{sample(of.Elem())}
	case reflect.Bool:
		return true
	case reflect.String:
		return "sample"
	case reflect.Int32, reflect.Int64:
		return int64(7)
	default:
		return map[string]any{"sample": "value"}
	}
}

// at returns a patch with a value at a path. "[a=b]" selects an element of a list.
func at(path string, value any) map[string]any {
	name, rest, more := strings.Cut(path, ".")
	name, element, list := strings.Cut(strings.TrimSuffix(name, "]"), "[")
	if more {
		value = at(rest, value)
	}
	if fields, isMap := value.(map[string]any); list && isMap {
		key, selected, _ := strings.Cut(element, "=")
		if fields[key] == nil && key == "port" {
			fields[key] = int64(8080)
		} else if fields[key] == nil {
			fields[key] = selected
		}
		value = []any{fields}
	}
	return map[string]any{name: value}
}

const (
	podPath       = "deployment.spec.template.spec"
	containerPath = podPath + ".containers[name=istio-proxy]"
)

// TestFields_EveryField checks each field of the API types, so a field that a new version of Kubernetes adds is rejected.
func TestFields_EveryField(t *testing.T) {
	type fieldsOf struct {
		path    string
		of      any
		allowed string
	}
	all := []fieldsOf{
		{"deployment", appsv1.Deployment{}, ""},
		{"deployment.spec", appsv1.DeploymentSpec{}, "replicas minReadySeconds progressDeadlineSeconds revisionHistoryLimit"},
		{"deployment.spec.strategy", appsv1.DeploymentStrategy{}, "type"},
		{"deployment.spec.strategy.rollingUpdate", appsv1.RollingUpdateDeployment{}, "maxUnavailable maxSurge"},
		{"deployment.spec.template", corev1.PodTemplateSpec{}, ""},
		{"deployment.spec.template.metadata", metav1.ObjectMeta{}, "labels annotations"},
		{podPath, corev1.PodSpec{}, "nodeSelector terminationGracePeriodSeconds"},
		{podPath + ".affinity", corev1.Affinity{}, ""},
		{podPath + ".affinity.podAffinity", corev1.PodAffinity{}, ""},
		{podPath + ".affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution", corev1.PodAffinityTerm{}, "topologyKey matchLabelKeys mismatchLabelKeys"},
		{podPath + ".affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution.labelSelector", metav1.LabelSelector{}, "matchLabels"},
		{podPath + ".affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution", corev1.WeightedPodAffinityTerm{}, "weight"},
		{podPath + ".affinity.nodeAffinity", corev1.NodeAffinity{}, ""},
		{podPath + ".affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.matchFields", corev1.NodeSelectorRequirement{}, "key operator values"},
		{podPath + ".affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution", corev1.PreferredSchedulingTerm{}, "weight"},
		{podPath + ".tolerations", corev1.Toleration{}, "key operator value effect tolerationSeconds"},
		{podPath + ".topologySpreadConstraints[topologyKey=sample]", corev1.TopologySpreadConstraint{}, "maxSkew topologyKey whenUnsatisfiable minDomains nodeAffinityPolicy nodeTaintsPolicy matchLabelKeys"},
		{podPath + ".resources", corev1.ResourceRequirements{}, "limits requests"},
		{containerPath, corev1.Container{}, ""},
		{containerPath + ".resizePolicy", corev1.ContainerResizePolicy{}, "resourceName restartPolicy"},
		{containerPath + ".resources", corev1.ResourceRequirements{}, "limits requests"},
		{"service", corev1.Service{}, ""},
		{"service.spec", corev1.ServiceSpec{}, "type externalTrafficPolicy internalTrafficPolicy ipFamilies ipFamilyPolicy loadBalancerClass allocateLoadBalancerNodePorts healthCheckNodePort sessionAffinity trafficDistribution"},
		{"service.spec.sessionAffinityConfig.clientIP", corev1.ClientIPConfig{}, "timeoutSeconds"},
		{"service.spec.ports[port=8080]", corev1.ServicePort{}, "nodePort"},
		{"serviceAccount", corev1.ServiceAccount{}, ""},
		{"horizontalPodAutoscaler", autoscalingv2.HorizontalPodAutoscaler{}, ""},
		{"horizontalPodAutoscaler.spec", autoscalingv2.HorizontalPodAutoscalerSpec{}, "minReplicas maxReplicas"},
		{"horizontalPodAutoscaler.spec.metrics", autoscalingv2.MetricSpec{}, "type"},
		{"horizontalPodAutoscaler.spec.metrics.resource", autoscalingv2.ResourceMetricSource{}, "name"},
		{"horizontalPodAutoscaler.spec.metrics.containerResource", autoscalingv2.ContainerResourceMetricSource{}, "name container"},
		{"horizontalPodAutoscaler.spec.metrics.pods.target", autoscalingv2.MetricTarget{}, "type value averageValue averageUtilization"},
		{"horizontalPodAutoscaler.spec.metrics.external.metric", autoscalingv2.MetricIdentifier{}, "name"},
		{"horizontalPodAutoscaler.spec.metrics.object.describedObject", autoscalingv2.CrossVersionObjectReference{}, "kind name apiVersion"},
		{"horizontalPodAutoscaler.spec.behavior.scaleUp", autoscalingv2.HPAScalingRules{}, "stabilizationWindowSeconds selectPolicy tolerance"},
		{"horizontalPodAutoscaler.spec.behavior.scaleDown.policies", autoscalingv2.HPAScalingPolicy{}, "type value periodSeconds"},
		{"podDisruptionBudget", policyv1.PodDisruptionBudget{}, ""},
		{"podDisruptionBudget.spec", policyv1.PodDisruptionBudgetSpec{}, "minAvailable maxUnavailable unhealthyPodEvictionPolicy"},
	}
	for _, kind := range patched {
		allowed := "labels annotations"
		if kind == ServiceAccount {
			allowed = "labels"
		}
		all = append(all, fieldsOf{kind.overlay() + ".metadata", metav1.ObjectMeta{}, allowed})
	}
	for _, probe := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		all = append(all,
			fieldsOf{containerPath + "." + probe, corev1.Probe{}, "initialDelaySeconds timeoutSeconds periodSeconds successThreshold failureThreshold terminationGracePeriodSeconds"},
			fieldsOf{containerPath + "." + probe + ".httpGet", corev1.HTTPGetAction{}, "path port scheme"},
			fieldsOf{containerPath + "." + probe + ".httpGet.httpHeaders", corev1.HTTPHeader{}, "name value"},
			fieldsOf{containerPath + "." + probe + ".grpc", corev1.GRPCAction{}, "port service"},
			fieldsOf{containerPath + "." + probe + ".tcpSocket", corev1.TCPSocketAction{}, "port"},
		)
	}
	p := play(t)
	documents := map[string]any{}
	for _, kind := range patched {
		documents[kind.overlay()] = p.plan().document(kind).Object
	}
	for _, c := range all {
		allowed := strings.Fields(c.allowed)
		for _, f := range reflect.VisibleFields(reflect.TypeOf(c.of)) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" { // embedded
				continue
			}
			path := p.Fields.rejected("", at(c.path+"."+name, sample(f.Type)), documents)
			if (path == "") != slices.Contains(allowed, name) {
				t.Errorf("%s.%s: rejected %q", c.path, name, path)
			}
			allowed = slices.DeleteFunc(allowed, func(a string) bool { return a == name })
		}
		if len(allowed) > 0 {
			t.Errorf("%s has no fields %v", c.path, allowed)
		}
		if path := p.Fields.rejected("", at(c.path+".new", "value"), documents); !strings.HasSuffix(path, ".new") {
			t.Errorf("a new field of %s: rejected %q", c.path, path)
		}
	}
}

// No default path ends at an object, so each field of each object is in the list or rejected.
func TestFields_EndAtValues(t *testing.T) {
	values := []reflect.Type{reflect.TypeFor[intstr.IntOrString](), reflect.TypeFor[resource.Quantity]()}
	for _, path := range defaultFields() {
		names := strings.Split(path, ".")
		kind := patched[slices.IndexFunc(patched, func(k Kind) bool { return k.overlay() == names[0] })]
		of := reflect.TypeOf(kind.empty()).Elem()
		for _, name := range names[1:] {
			if !strings.HasPrefix(name, "$") {
				field, _ := fieldOf(of, strings.TrimSuffix(name, "?"))
				of = field.Type
				for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
					of = of.Elem()
				}
			}
		}
		last := names[len(names)-1]
		if of.Kind() == reflect.Struct && !slices.Contains(values, of) && !strings.HasPrefix(last, "$") && !strings.HasSuffix(last, "?") {
			t.Errorf("%s allows each field of a %s", path, of)
		}
	}
}

func TestFields_Rejected(t *testing.T) {
	const pod = "spec: {template: {spec: "
	for name, c := range map[string]struct{ key, text, field string }{
		"host network":                {"deployment", pod + "{hostNetwork: true}}}", podPath + ".hostNetwork"},
		"volume":                      {"deployment", pod + "{volumes: [{name: a, hostPath: {path: /}}]}}}", podPath + ".volumes"},
		"account":                     {"deployment", pod + "{serviceAccountName: other}}}", podPath + ".serviceAccountName"},
		"image":                       {"deployment", pod + "{containers: [{name: istio-proxy, image: a}]}}}", podPath + ".containers.image"},
		"probe command":               {"deployment", pod + "{containers: [{name: istio-proxy, livenessProbe: {exec: {command: [a]}}}]}}}", podPath + ".containers.livenessProbe.exec"},
		"probe of a host":             {"deployment", pod + "{containers: [{name: istio-proxy, livenessProbe: {httpGet: {host: a}}}]}}}", podPath + ".containers.livenessProbe.httpGet.host"},
		"new container":               {"deployment", pod + "{containers: [{name: a, resources: {limits: {cpu: 1}}}]}}}", podPath + ".containers.name"},
		"container without a name":    {"deployment", pod + "{containers: [{resources: {limits: {cpu: 1}}}]}}}", ""},
		"no containers":               {"deployment", pod + "{containers: null}}}", podPath + ".containers"},
		"no pod":                      {"deployment", "spec: {template: {spec: null}}", podPath},
		"no spec":                     {"deployment", "spec: null", "deployment.spec"},
		"replaced pod":                {"deployment", pod + "{$patch: replace}}}", podPath + ".$patch"},
		"replaced containers":         {"deployment", pod + "{containers: [{$patch: replace}, {name: istio-proxy}]}}}", podPath + ".containers.$patch"},
		"deleted container":           {"deployment", pod + "{containers: [{$patch: delete, name: istio-proxy}]}}}", podPath + ".containers.$patch"},
		"order":                       {"deployment", pod + "{$setElementOrder/containers: [{name: istio-proxy}], containers: [{name: istio-proxy}]}}}", podPath + ".$setElementOrder/containers"},
		"retained keys":               {"deployment", pod + "{$retainKeys: [containers]}}}", podPath + ".$retainKeys"},
		"deleted object":              {"deployment", "$patch: delete", "deployment.$patch"},
		"containers as an object":     {"deployment", pod + "{containers: {resources: {limits: {cpu: 1}}}}}}", podPath + ".containers"},
		"container is text":           {"deployment", pod + "{containers: [a]}}}", podPath + ".containers"},
		"name is an object":           {"deployment", pod + "{containers: [{name: {a: b}}]}}}", podPath + ".containers.name"},
		"selector":                    {"deployment", "spec: {selector: {matchLabels: {a: b}}}", "deployment.spec.selector"},
		"inject":                      {"deployment", "spec: {template: {metadata: {labels: {sidecar.istio.io/inject: 'true'}}}}", "deployment.spec.template.metadata.labels[sidecar.istio.io/inject]"},
		"selected label":              {"deployment", "spec: {template: {metadata: {labels: {" + gateway.GatewayNameLabelKey + ": null}}}}", "deployment.spec.template.metadata.labels[" + gateway.GatewayNameLabelKey + "]"},
		"no labels":                   {"deployment", "spec: {template: {metadata: {labels: null}}}", "deployment.spec.template.metadata.labels"},
		"replaced labels":             {"deployment", "spec: {template: {metadata: {labels: {$patch: replace, a: b}}}}", "deployment.spec.template.metadata.labels[$patch]"},
		"AppArmor":                    {"deployment", "spec: {template: {metadata: {annotations: {container.apparmor.security.beta.kubernetes.io/istio-proxy: unconfined}}}}", "deployment.spec.template.metadata.annotations[container.apparmor.security.beta.kubernetes.io/istio-proxy]"},
		"external IP":                 {"service", "spec: {externalIPs: [192.0.2.1]}", "service.spec.externalIPs"},
		"new port":                    {"service", "spec: {ports: [{port: 99, nodePort: 30000}]}", "service.spec.ports.port"},
		"replaced ports":              {"service", "spec: {ports: [{$patch: replace}]}", "service.spec.ports.$patch"},
		"Service selector":            {"service", "spec: {selector: {app: other}}", "service.spec.selector"},
		"token of the account":        {"serviceAccount", "automountServiceAccountToken: true", "serviceAccount.automountServiceAccountToken"},
		"finalizers":                  {"serviceAccount", "metadata: {$deleteFromPrimitiveList/finalizers: [a]}", "serviceAccount.metadata.$deleteFromPrimitiveList/finalizers"},
		"target of the autoscaler":    {"horizontalPodAutoscaler", "spec: {scaleTargetRef: {name: other}}", "horizontalPodAutoscaler.spec.scaleTargetRef"},
		"selector of the budget":      {"podDisruptionBudget", "spec: {selector: {}}", "podDisruptionBudget.spec.selector"},
		"repeated kind and container": {"deployment", "apiVersion: apps/v1\nkind: Deployment\nspec: {template: {spec: {containers: [{name: istio-proxy, image: auto}]}}}", ""},
		"deleted port":                {"service", "spec: {ports: [{$patch: delete, port: 15021}]}", ""},
		"another probe":               {"deployment", pod + "{containers: [{name: istio-proxy, readinessProbe: {httpGet: null, tcpSocket: {port: 15021}}, livenessProbe: null}]}}}", ""},
		"label, and a removed label":  {"deployment", "spec: {template: {metadata: {labels: {team: a, other: null}}}}", ""},
		"scheduling":                  {"deployment", pod + "{tolerations: [{operator: Exists}], nodeSelector: {$patch: replace, a: b}}}}", ""},
		"namespaces of an affinity":   {"deployment", pod + "{affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {namespaces: [a]}}]}}}}}", podPath + ".affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution.podAffinityTerm.namespaces"},
		"new field of a toleration":   {"deployment", pod + "{tolerations: [{key: a}, {new: b}]}}}", podPath + ".tolerations.new"},
		"tolerations as an object":    {"deployment", pod + "{tolerations: {new: b}}}}", podPath + ".tolerations.new"},
		"strategy":                    {"deployment", "spec: {strategy: {type: Recreate, rollingUpdate: null}}", ""},
		"removed subtrees":            {"deployment", pod + "{affinity: {nodeAffinity: null}, tolerations: null, topologySpreadConstraints: null}}}", ""},
		"affinity": {"deployment", pod + `{affinity: {$patch: replace, podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: a, labelSelector: {matchLabels: {a: b}}}]},
 nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: In, values: [b]}]}]}}}}}}`, ""},
		"spread":                        {"deployment", pod + "{topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchExpressions: [{key: a, operator: Exists}]}}]}}}", ""},
		"metrics":                       {"horizontalPodAutoscaler", "spec: {maxReplicas: 3, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}], behavior: {scaleDown: {policies: [{type: Pods, value: 1, periodSeconds: 60}]}}}", ""},
		"annotation of a load balancer": {"service", "metadata: {annotations: {service.beta.kubernetes.io/aws-load-balancer-scheme: internal}}", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, parameters("params"))
			data := map[string]string{c.key: c.text}
			p.configs["params"] = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "params"}, Data: data}
			plan := p.plan()
			want := "ConfigMap shop/params: field " + c.field + " must not be changed; an administrator can allow it with --gateway-overlay-fields"
			if c.field == "" {
				if plan.Problem != nil && name != "container without a name" {
					t.Fatal(plan.Problem)
				}
				return
			}
			if plan.Problem == nil || plan.Problem.Reason != ReasonInvalidParameters || plan.Problem.Message != want || len(plan.Steps) > 0 {
				t.Fatalf("the plan is %+v, want %s", plan, want)
			}
			// The ConfigMap of the class is in the system namespace, where only administrators write.
			p.Defaults, p.Gateway.Spec.Infrastructure = p.configs["params"], nil
			if plan = p.plan(); plan.Problem != nil && strings.Contains(plan.Problem.Message, "--gateway-overlay-fields") {
				t.Error(plan.Problem)
			}
		})
	}
}

func TestFields_More(t *testing.T) {
	for path, want := range map[string]string{
		"":                             "does not begin with a key of an overlay",
		"pod.spec":                     "does not begin with a key of an overlay",
		"deployment.spec.replica":      "v1.DeploymentSpec has no field replica",
		"deployment.spec.":             "v1.DeploymentSpec has no field ",
		"service.metadata.labels.app":  "map[string]string has no field app",
		podPath + ".tolerations.key":   "",
		podPath + ".tolerations.keys":  "v1.Toleration has no field keys",
		podPath + ".volumes":           "",
		podPath + ".containers.$patch": "",
		"deployment":                   "",
	} {
		if err := ValidateFields([]string{path}); (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path)) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	for _, more := range [][]string{
		{"deployment.spec.template"},
		{podPath + ".volumes", podPath + ".containers.env", podPath + ".containers.volumeMounts", "deployment.spec.template.metadata.labels"},
	} {
		p := play(t, parameters("params"))
		var err error
		if p.Fields, err = newFields(more); err != nil {
			t.Fatal(err)
		}
		p.configs["params"] = &corev1.ConfigMap{Data: map[string]string{"deployment": `
spec: {template: {metadata: {labels: {sidecar.istio.io/inject: 'true'}}, spec: {volumes: [{name: a, emptyDir: {}}],
 containers: [{name: istio-proxy, env: [{name: A, value: b}], volumeMounts: [{name: a, mountPath: /a}]}]}}}`}}
		if plan := p.plan(); plan.Problem != nil {
			t.Errorf("%v: %v", more, plan.Problem)
		}
		p.configs["params"].Data["deployment"] = "spec: {selector: {matchLabels: {a: b}}}"
		if plan := p.plan(); plan.Problem == nil {
			t.Errorf("%v: selector accepted", more)
		}
	}
}

// remainder returns a document without the fields that an overlay may change by default.
func remainder(t *testing.T, kind Kind, document map[string]any) metav1.Object {
	t.Helper()
	o, err := kind.typed(document)
	harness.Must(t, err)
	keep := func(meta *metav1.ObjectMeta) {
		for _, keys := range []map[string]string{meta.Labels, meta.Annotations} {
			for key := range keys {
				if !reserved(key) || key == appliedAnnotation {
					delete(keys, key)
				}
			}
		}
	}
	switch o := o.(type) {
	case *corev1.ServiceAccount:
		keep(&o.ObjectMeta)
	case *corev1.Service:
		keep(&o.ObjectMeta)
		spec := corev1.ServiceSpec{Selector: o.Spec.Selector, ExternalIPs: o.Spec.ExternalIPs, ExternalName: o.Spec.ExternalName, ClusterIP: o.Spec.ClusterIP, ClusterIPs: o.Spec.ClusterIPs, PublishNotReadyAddresses: o.Spec.PublishNotReadyAddresses, LoadBalancerIP: o.Spec.LoadBalancerIP, LoadBalancerSourceRanges: o.Spec.LoadBalancerSourceRanges}
		o.Spec = spec
	case *appsv1.Deployment:
		keep(&o.ObjectMeta)
		keep(&o.Spec.Template.ObjectMeta)
		o.Spec = appsv1.DeploymentSpec{Selector: o.Spec.Selector, Template: o.Spec.Template}
		spec := &o.Spec.Template.Spec
		spec.Affinity, spec.NodeSelector, spec.Tolerations, spec.TopologySpreadConstraints, spec.TerminationGracePeriodSeconds, spec.Resources = nil, nil, nil, nil, nil, nil
		for i := range spec.Containers {
			c := &spec.Containers[i]
			c.ResizePolicy, c.Resources.Limits, c.Resources.Requests = nil, nil, nil
			for _, probe := range []**corev1.Probe{&c.LivenessProbe, &c.ReadinessProbe, &c.StartupProbe} {
				if *probe != nil && (*probe).Exec == nil && ((*probe).HTTPGet == nil || (*probe).HTTPGet.Host == "") && ((*probe).TCPSocket == nil || (*probe).TCPSocket.Host == "") {
					*probe = nil
				}
			}
		}
	}
	return o
}

// No overlay of a Gateway may change another field, with any directive.
func FuzzFields(f *testing.F) {
	for _, text := range []string{
		"spec: {template: {spec: {containers: [{name: istio-proxy, resources: {limits: {cpu: 1}}}], $setElementOrder/containers: [{name: a}]}}}",
		"spec: {template: {spec: {containers: [{$patch: merge, name: istio-proxy, image: a}]}}}", "spec: {template: {$retainKeys: [spec], spec: {affinity: {$patch: delete}}}}",
		"spec: {strategy: {$retainKeys: [type], type: Recreate}, replicas: 3}", "spec: {ports: [{$patch: delete, port: 8080}, {port: 15021, nodePort: 30000}]}",
		"metadata: {labels: {a: b, $patch: replace}}", "metadata: {labels: {a: null}, annotations: {b: c}}", "$patch: replace", "spec: {type: NodePort}",
		"spec: {template: {spec: {containers: [{name: istio-proxy, readinessProbe: {httpGet: {host: a}}}]}}}", "spec: {ports: [{port: 8080.0, targetPort: 1}]}",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p := play(t)
		plain := p.plan()
		parameters("params")(p.Gateway)
		for _, kind := range rendered {
			p.configs["params"] = &corev1.ConfigMap{Data: map[string]string{kind.overlay(): text}}
			plan := p.plan()
			if plan.Problem != nil {
				continue
			}
			want := remainder(t, kind, runtime.DeepCopyJSON(plain.document(kind).Object))
			if got := remainder(t, kind, runtime.DeepCopyJSON(plan.document(kind).Object)); !reflect.DeepEqual(got, want) {
				t.Errorf("%s is\n%+v, want\n%+v", kind, got, want)
			}
		}
	})
}
