{{- define "twolane.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "twolane.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "twolane.labels" -}}
{{ include "twolane.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "twolane.hasReplicas" -}}
{{- if or (gt (int .Values.replicas) 1) .Values.autoscaling.enabled -}}yes{{- end -}}
{{- end -}}

{{/* gateway.yaml, as JSON: numbers of values are floats, and YAML would have 1e+06 for a million. */}}
{{- define "twolane.config" -}}
{{- $name := include "twolane.fullname" . -}}
{{- $space := .Release.Namespace -}}
{{- range list "listen" "admin" "replicas" "store" "store_file" -}}
{{- if hasKey $.Values.config . -}}{{- fail (printf "config.%s: the chart sets it" .) -}}{{- end -}}
{{- end -}}
{{- if hasKey (.Values.config.limits | default dict) "drain" -}}
{{- fail "config.limits.drain: set drainSeconds, from which the grace period of the pod follows, too" -}}
{{- end -}}
{{- if hasKey (.Values.config.limits | default dict) "valkey" -}}
{{- fail "config.limits.valkey: set valkey.secretName, as the URL may hold a password" -}}
{{- end -}}
{{- if and (include "twolane.hasReplicas" .) (not .Values.store.secretName) -}}
{{- fail "store.secretName: more than one replica needs a PostgreSQL store, as an SQLite file belongs to one gateway" -}}
{{- end -}}
{{- $hosts := list $name (printf "%s.%s" $name $space) (printf "%s.%s.svc" $name $space) (printf "%s.%s.svc.cluster.local" $name $space) -}}
{{- if .Values.ingress.host -}}{{- $hosts = append $hosts .Values.ingress.host -}}{{- end -}}
{{- $hosts = concat $hosts (.Values.config.allowed_hosts | default list) | uniq -}}
{{- $store := ternary "${GATEWAY_STORE}" "sqlite:////var/lib/gateway/gateway.db" (ne .Values.store.secretName "") -}}
{{- $limits := dict "drain" (printf "%ds" (int .Values.drainSeconds)) -}}
{{- if .Values.valkey.secretName -}}{{- $_ := set $limits "valkey" "${GATEWAY_VALKEY}" -}}{{- end -}}
{{- $own := dict "listen" "0.0.0.0:8080" "admin" (dict "listen" "0.0.0.0:8081") "replicas" (dict "listen" "0.0.0.0:8082" "address" "${POD_IP}") "allowed_hosts" $hosts "store" $store "limits" $limits -}}
{{- mergeOverwrite (deepCopy .Values.config) $own | toPrettyJson -}}
{{- end -}}
