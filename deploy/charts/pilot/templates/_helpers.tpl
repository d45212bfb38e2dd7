{{- define "revision" -}}{{ .Values.revision | default .Release.Name }}{{- end -}}

{{- define "object" -}}{{ .Values.name }}-{{ include "revision" . }}{{- end -}}

{{- /* Name of cluster-scoped objects. Name, revision and namespace contain no dot, so two installations never share it. */ -}}
{{- define "cluster.object" -}}{{ include "object" . }}.{{ .Release.Namespace }}{{- end -}}

{{- define "port" -}}{{ regexFind "[0-9]+$" .Values.address }}{{- end -}}

{{- define "labels" -}}
app.kubernetes.io/name: {{ .Values.name }}
app.kubernetes.io/part-of: incumbent
istio.io/rev: {{ include "revision" . | quote }}
{{- end -}}

{{- /* The labels of a value. Null removes a label, also one that helm upgrade --reuse-values passes. */ -}}
{{- define "added.labels" -}}
{{- range $name, $value := . }}{{ if not (kindIs "invalid" $value) }}
{{ $name }}: {{ $value | quote }}
{{- end }}{{ end -}}
{{- end -}}

{{- define "selector" -}}
app: {{ .Values.name }}
istio.io/rev: {{ include "revision" . | quote }}
{{- end -}}

{{- /* The following templates return "true" if the feature is enabled, otherwise "". */ -}}
{{- define "ingress.mode" -}}
{{- $mode := .Values.ingress.mode -}}
{{- if kindIs "invalid" $mode }}{{ $mode = (.Values.meshConfig | default dict).ingressControllerMode }}{{ end -}}
{{- if kindIs "invalid" $mode }}STRICT{{ else }}{{ $mode | default "OFF" }}{{ end -}}
{{- end -}}
{{- define "ingress.on" -}}{{ if ne (include "ingress.mode" .) "OFF" }}true{{ end }}{{- end -}}
{{- define "status.on" -}}{{ if and .Values.gatewayAPI.enabled .Values.gatewayAPI.status }}true{{ end }}{{- end -}}
{{- define "deployment.on" -}}{{ if and .Values.gatewayAPI.enabled .Values.gatewayAPI.deployment }}true{{ end }}{{- end -}}
{{- define "fence.on" -}}{{ if and .Values.elections.enabled (ne .Values.fence.mode "none") }}true{{ end }}{{- end -}}
{{- define "member.on" -}}
{{- $on := .Values.elections.member -}}
{{- if kindIs "invalid" $on }}{{ $on = or .Values.elections.strategy (eq .Values.fence.mode "deny") }}{{ end -}}
{{- if and .Values.elections.enabled $on }}true{{ end -}}
{{- end -}}
{{- define "coordinated.on" -}}{{ if and .Values.elections.enabled .Values.elections.strategy }}true{{ end }}{{- end -}}
{{- define "fence.coordinated" -}}
{{- $on := .Values.fence.coordinated -}}
{{- if kindIs "invalid" $on }}{{ $on = include "coordinated.on" . }}{{ end -}}
{{- if $on }}true{{ end -}}
{{- end -}}
{{- define "coordinator.on" -}}
{{- $on := .Values.elections.coordinator -}}
{{- if kindIs "invalid" $on }}{{ $on = .Values.elections.strategy }}{{ end -}}
{{- if and .Values.elections.enabled $on }}true{{ end -}}
{{- end -}}

{{- /*
The gateway of the Ingresses, as a JSON object: the service, or the selector of Pods, and its namespace. As in istiod, an empty
meshConfig.ingressService means Pods.
*/ -}}
{{- define "ingress.gateway" -}}
{{- $mesh := .Values.meshConfig | default dict -}}
{{- $selector := .Values.ingress.selector -}}
{{- if and (not $selector) (not .Values.ingress.service) (kindIs "string" $mesh.ingressService) (not $mesh.ingressService) -}}
{{- $selector = $mesh.ingressSelector | default "ingressgateway" -}}
{{- end -}}
{{- $service := coalesce .Values.ingress.service $mesh.ingressService "istio-ingressgateway" -}}
{{- $namespace := (.Values.env | default dict).K8S_INGRESS_NS | default .Release.Namespace -}}
{{- if $selector }}{{ $service = "" }}{{ else if contains "/" $service }}{{ $namespace = first (splitList "/" $service) }}{{ end -}}
{{- dict "service" $service "selector" $selector "namespace" $namespace "name" (last (splitList "/" $service)) | toJson -}}
{{- end -}}

{{- /* Permissions in the namespace of the gateway of the Ingresses. */ -}}
{{- define "ingress.rules" -}}
{{- $gateway := include "ingress.gateway" . | fromJson -}}
{{- if $gateway.service }}
- {apiGroups: [""], resources: [services], resourceNames: [{{ $gateway.name }}], verbs: [list, watch]}
{{- end }}
- {apiGroups: [""], resources: [pods], verbs: [list, watch]}
{{- end -}}

{{- /* The seconds of a duration such as 1m30s. */ -}}
{{- define "seconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+[a-z]+" . -1 -}}
{{- $unit := get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) (regexFind "[a-z]+" .) -}}
{{- $sum = addf $sum (mulf $unit (regexFind "[0-9.]+" . | float64)) -}}
{{- end }}{{ $sum -}}
{{- end -}}

{{- /* Names of the locks of the release, as a JSON object with the lists configmaps and leases. */ -}}
{{- define "locks" -}}
{{- $rev := include "revision" . -}}
{{- $maps := list "istio-namespace-controller-election" -}}
{{- $leases := list "istio-namespace-controller-election" -}}
{{- if include "ingress.on" . }}{{ $maps = append $maps "istio-leader" }}{{ $leases = append $leases "istio-leader" }}{{ end -}}
{{- if include "status.on" . }}{{ $maps = append $maps "istio-gateway-status-leader" }}{{ $leases = append $leases (printf "istio-gateway-status-leader-%s" $rev) }}{{ end -}}
{{- if include "deployment.on" . }}{{ $leases = append $leases (printf "istio-gateway-deployment-%s" $rev) }}{{ end -}}
{{- if include "coordinator.on" . }}{{ $leases = append $leases "incumbent-coordinator" }}{{ end -}}
{{ dict "configmaps" $maps "leases" $leases | toJson }}
{{- end -}}

{{- /* A label selector as text. Istio's values have objects with matchLabels and matchExpressions. */ -}}
{{- define "selector.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else -}}
{{- $all := list -}}
{{- range $key, $value := .matchLabels }}{{ $all = append $all (printf "%s=%s" $key $value) }}{{ end -}}
{{- range .matchExpressions -}}
{{- $in := printf "%s %s (%s)" .key (lower .operator) (join "," .values) -}}
{{- $all = append $all (get (dict "Exists" .key "DoesNotExist" (printf "!%s" .key) "In" $in "NotIn" $in) .operator) -}}
{{- end -}}
{{ join "," $all }}
{{- end -}}
{{- end -}}

{{- define "args" -}}
- server
- {{ printf "--address=%s" .Values.address | quote }}
- {{ printf "--ca-bundle=%s" (.Values.caBundle.file | default "/etc/incumbent/ca/root-cert.pem") | quote }}
{{- with .Values.elections.leaseDuration }}
- --lease-duration={{ . }}
{{- end }}
{{- with .Values.elections.renewDeadline }}
- --renew-deadline={{ . }}
{{- end }}
{{- with .Values.elections.retryPeriod }}
- --retry-period={{ . }}
{{- end }}
{{- if .Values.remoteKubeconfigSecret }}
- --remote-kubeconfig=/etc/incumbent/remote/kubeconfig
{{- end }}
{{- if .Values.witness.sidecar }}
- --witness=socket
- --witness-socket=/run/incumbent/witness
{{- end }}
{{- if ne .Values.debugAddress "127.0.0.1:15016" }}
- {{ printf "--debug-address=%s" .Values.debugAddress | quote }}
{{- end }}
{{- if ne .Values.elections.lock "configmap" }}
- --lock={{ .Values.elections.lock }}
{{- end }}
{{- if include "coordinated.on" . }}
- --election-strategy={{ .Values.elections.strategy }}
{{- end }}
{{- range .Values.discoverySelectors | default (.Values.meshConfig | default dict).discoverySelectors }}
- {{ printf "--discovery-selector=%s" (include "selector.text" .) | quote }}
{{- end }}
{{- with .Values.excludedNamespaces }}
- --excluded-namespaces={{ join "," . }}
{{- end }}
{{- with .Values.gatewayAPI.objects }}
- {{ printf "--gateway-objects=%s" (join "," .) | quote }}
{{- end }}
{{- with .Values.gatewayAPI.overlayFields }}
- {{ printf "--gateway-overlay-fields=%s" (join "," .) | quote }}
{{- end }}
{{- if ne (include "ingress.mode" .) "STRICT" }}
- --ingress-controller-mode={{ include "ingress.mode" . }}
{{- end }}
{{- with .Values.ingress.class | default (.Values.meshConfig | default dict).ingressClass }}
- {{ printf "--ingress-class=%s" . | quote }}
{{- end }}
{{- $gateway := include "ingress.gateway" . | fromJson }}
{{- if $gateway.selector }}
- {{ printf "--ingress-selector=%s" $gateway.selector | quote }}
{{- else if ne $gateway.service "istio-ingressgateway" }}
- --ingress-service={{ $gateway.service }}
{{- end }}
{{- if not (kindIs "invalid" .Values.kube.qps) }}
- --kube-qps={{ .Values.kube.qps }}
{{- end }}
{{- if not (kindIs "invalid" .Values.kube.burst) }}
- --kube-burst={{ .Values.kube.burst }}
{{- end }}
{{- with .Values.log.level }}
- {{ printf "--log-level=%s" . | quote }}
{{- end }}
{{- if .Values.log.json }}
- --log-as-json
{{- end }}
{{- range .Values.args }}
- {{ . | quote }}
{{- end }}
{{- end -}}

{{- /* The variables with fields of the Pod are first, so that later variables can refer to them. */ -}}
{{- define "env" -}}
{{- $env := dict -}}
{{- if not .Values.gate }}{{ $_ := set $env "ENABLE_WRITE_GATE" "false" }}{{ end -}}
{{- if and .Values.elections.enabled (eq .Values.fence.mode "deny") }}{{ $_ := set $env "ENABLE_WRITE_FENCE" "true" }}{{ end -}}
{{- if and .Values.elections.enabled (not (include "member.on" .)) }}{{ $_ := set $env "ENABLE_MEMBER_LEASE" "false" }}{{ end -}}
{{- if include "coordinator.on" . }}{{ $_ := set $env "ENABLE_COORDINATOR" "true" }}{{ end -}}
{{- if not .Values.gatewayAPI.enabled }}{{ $_ := set $env "PILOT_ENABLE_GATEWAY_API" "false" }}{{ end -}}
{{- if not .Values.gatewayAPI.status }}{{ $_ := set $env "PILOT_ENABLE_GATEWAY_API_STATUS" "false" }}{{ end -}}
{{- if not .Values.gatewayAPI.deployment }}{{ $_ := set $env "PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER" "false" }}{{ end -}}
{{- if not .Values.gatewayAPI.gatewayClass }}{{ $_ := set $env "PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER" "false" }}{{ end -}}
{{- $env = merge $env (.Values.env | default dict) -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
- name: POD_UID
  valueFrom: {fieldRef: {fieldPath: metadata.uid}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
- name: POD_IP
  valueFrom: {fieldRef: {fieldPath: status.podIP}}
- name: REVISION
  value: {{ include "revision" . | quote }}
{{- if not .Values.elections.enabled }}
- name: ENABLE_LEADER_ELECTION
  value: "false"
{{- end }}
{{- range $name, $value := $env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}
