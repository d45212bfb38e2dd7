{{- /* A tag that another has made is that one's, and one for a revision that nobody runs leaves its objects to nobody. Without
a cluster there is nothing to look at. */ -}}
{{- define "tag.check" -}}
{{- $root := .root -}}
{{- $there := lookup "admissionregistration.k8s.io/v1" "MutatingWebhookConfiguration" "" (printf "istio-revision-tag-%s" .tag) -}}
{{- if $there -}}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $there -}}
{{- $namespace := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $there -}}
{{- if not $owner -}}
{{- fail (printf "tag %s (webhook istio-revision-tag-%s, for revision %s) was not made by this chart: leave it to who made it, `istioctl tag set %s --revision %s --overwrite`, or take it away first, `istioctl tag remove %s`" .tag .tag (dig "metadata" "labels" "istio.io/rev" "none" $there) .tag .revision .tag) -}}
{{- end -}}
{{- if or (ne $owner $root.Release.Name) (ne $namespace $root.Release.Namespace) -}}
{{- fail (printf "tag %s is that of the release %s in namespace %s: `helm upgrade %s --namespace %s`" .tag $owner $namespace $owner $namespace) -}}
{{- end -}}
{{- end -}}
{{- if and (not $root.Values.force) (lookup "v1" "Namespace" "" "kube-system") -}}
{{- $running := list -}}
{{- range (lookup "apps/v1" "Deployment" $root.Release.Namespace "").items -}}
{{- if gt (int (dig "status" "availableReplicas" 0 .)) 0 -}}
{{- $running = append $running (dig "metadata" "labels" "istio.io/rev" "" .) -}}
{{- end -}}
{{- end -}}
{{- $running = $running | compact | uniq | sortAlpha -}}
{{- if not (has .revision $running) -}}
{{- fail (printf "tag %s: no replica of revision %s is available in namespace %s (there are %s): install it and wait for it, or take it all the same with --set force=true" .tag .revision $root.Release.Namespace (ternary (join ", " $running) "none" (gt (len $running) 0))) -}}
{{- end -}}
{{- end -}}
{{- end -}}
