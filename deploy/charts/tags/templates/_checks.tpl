{{- /* The name of the webhook of a tag. As in Istio's charts, it has the namespace as a suffix outside istio-system. */ -}}
{{- define "tag.name" -}}
istio-revision-tag-{{ .tag }}{{ if ne .root.Release.Namespace "istio-system" }}-{{ .root.Release.Namespace }}{{ end }}
{{- end -}}
{{- /* Fails if the tag exists and does not belong to this release, or if no replica of the revision is available. A tag for a
revision without replicas leaves its namespaces without a control plane. Without a cluster, lookup returns no objects. */ -}}
{{- define "tag.check" -}}
{{- $root := .root -}}
{{- $name := include "tag.name" . -}}
{{- $existing := lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" $name -}}
{{- if $existing -}}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $existing -}}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $existing -}}
{{- if not $owner -}}
{{- fail (printf "tag %s (webhook %s, for revision %s) was not created by this chart. Change it with `istioctl tag set %s --revision %s --overwrite`, or remove it first with `istioctl tag remove %s`." .tag $name (dig "metadata" "labels" "istio.io/rev" "none" $existing) .tag .revision .tag) -}}
{{- end -}}
{{- if or (ne $owner $root.Release.Name) (ne $namespace $root.Release.Namespace) -}}
{{- fail (printf "tag %s belongs to release %s in namespace %s. Change it with `helm upgrade %s --namespace %s`." .tag $owner $namespace $owner $namespace) -}}
{{- end -}}
{{- end -}}
{{- if and (not $root.Values.force) (lookup "v1" "Namespace" "" "kube-system") -}}
{{- $available := list -}}
{{- range (lookup "apps/v1" "Deployment" $root.Release.Namespace "").items -}}
{{- if gt (int (dig "status" "availableReplicas" 0 .)) 0 -}}
{{- $available = append $available (dig "metadata" "labels" "istio.io/rev" "" .) -}}
{{- end -}}
{{- end -}}
{{- $available = $available | compact | uniq | sortAlpha -}}
{{- if not (has .revision $available) -}}
{{- fail (printf "tag %s: no replica of revision %s is available in namespace %s (available: %s). Install the revision and wait until it is available, or skip this check with --set force=true." .tag .revision $root.Release.Namespace (ternary (join ", " $available) "none" (gt (len $available) 0))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
