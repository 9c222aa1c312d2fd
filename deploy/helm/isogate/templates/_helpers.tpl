{{- define "isogate.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "isogate.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "isogate.labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "isogate.selector" . }}
{{- end -}}

{{- /* `--set image.tag=1` is a number, and in a file a large one would get an exponent. */ -}}
{{- define "isogate.image" -}}
{{- $tag := .Values.image.tag -}}
{{- printf "%s:%v" .Values.image.repository (ternary $tag (int64 $tag) (kindIs "string" $tag)) -}}
{{- end -}}

{{- define "isogate.scheme" -}}
{{- ternary "HTTPS" "HTTP" (ne .Values.tls.secretName "") -}}
{{- end -}}

{{- /* Not empty: the listener refuses who has none. */ -}}
{{- define "isogate.needsClientCertificate" -}}
{{- $tls := .Values.settings.tls | default dict -}}
{{- if and $tls.client_ca (ne ($tls.client_auth | default "required") "optional") -}}
true
{{- end -}}
{{- end -}}

{{- /* How many probes may fail at a start, one every 2 s: 300 s, and as long as it may wait for another gateway. */ -}}
{{- define "isogate.startupFailures" -}}
{{- $settings := .Values.settings -}}
{{- $wait := ternary ($settings.wait_for_sidecar_timeout_sec | default 60) 0 (not (empty $settings.wait_for_sidecar)) -}}
{{- add 150 (div (int64 $wait) 2) -}}
{{- end -}}

{{- /* What would be a mistake is said here, before anything is installed. */ -}}
{{- define "isogate.check" -}}
{{- if and (not .Values.tls.secretName) (not .Values.allowPlainHttp) -}}
{{- fail "tls.secretName is empty: name a Secret, or set allowPlainHttp: true" -}}
{{- end -}}
{{- if and .Values.tls.secretName .Values.allowPlainHttp -}}
{{- fail "allowPlainHttp: true needs an empty tls.secretName" -}}
{{- end -}}
{{- if and (not .Values.keys) (not .Values.keysSecret.name) (not .Values.settings.tls) -}}
{{- fail "nobody may call: set keys or keysSecret.name" -}}
{{- end -}}
{{- if eq .Release.Namespace .Values.sandboxes.namespace -}}
{{- fail "the gateway may not be in the namespace of its sandboxes" -}}
{{- end -}}
{{- end -}}

{{- /* isogate.yaml */ -}}
{{- define "isogate.config" -}}
{{- $backend := dict "in_cluster" true "namespace" .Values.sandboxes.namespace "image" .Values.sandboxes.image "runner_image" .Values.sandboxes.runnerImage -}}
{{- $k8s := dict "name" "k8s" "egress" .Values.sandboxes.egress "config" (mergeOverwrite $backend (deepCopy .Values.sandboxes.config)) -}}
{{- if .Values.sandboxes.limits -}}
{{- $_ := set $k8s "limits" .Values.sandboxes.limits -}}
{{- end -}}
{{- $config := dict "listen" (list "0.0.0.0:9090") "state_dir" "/var/lib/isogate/state" "instance" .Values.instance "multi_agent" true "require_remote" true "min_isolation" "container" "on_shutdown" "keep" "limits" (dict "max_held_bytes" 268435456) "backends" (list $k8s) -}}
{{- if not .Values.keysSecret.name -}}
{{- $_ := set $config "keys" .Values.keys -}}
{{- end -}}
{{- if .Values.tls.secretName -}}
{{- $_ := set $config "tls" (dict "cert" "/etc/isogate/tls/tls.crt" "key" "/etc/isogate/tls/tls.key") -}}
{{- end -}}
{{- $config = mergeOverwrite $config (deepCopy .Values.settings) -}}
{{- toYaml $config -}}
{{- end -}}
