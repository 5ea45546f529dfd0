{{/*
What names of objects begin with: the release's name, which may have dots and begin with a digit, as a Service's may not.
Nothing is longer than the 63 characters of a DNS label after "-operator". No hash: where two releases come out the same,
Helm refuses the second one.
*/}}
{{- define "oarlock.name" -}}
{{- $name := .Release.Name | replace "." "-" }}
{{- if regexMatch "^[0-9]" $name }}{{ $name = printf "oarlock-%s" $name | trunc 54 | trimSuffix "-" }}{{ end }}
{{- $name }}
{{- end }}

{{/* What becomes of nodes whose GPUs are broken: "true", "DryRun" or "false". Without a ClusterRole there is no right on nodes. */}}
{{- define "oarlock.cordon" -}}
{{ if .Values.namespaces }}false{{ else }}{{ .Values.cordon }}{{ end }}
{{- end }}

{{- define "oarlock.labels" -}}
app.kubernetes.io/name: oarlock
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "oarlock.selector" -}}
app.kubernetes.io/name: oarlock
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* Images have no default: none is published, and a name on a public registry that nobody holds is anybody's to take. */}}
{{- define "oarlock.image" -}}
{{- $repository := required "image.repository: name the operator's image in your registry; `make images` builds it (docs/images.md)" .Values.image.repository -}}
{{- with .Values.image.digest -}}
{{ $repository }}@{{ . }}
{{- else -}}
{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "oarlock.trainerImage" -}}
{{ required "trainerImage: name the trainer's image in your registry, with its tag; `make images` builds it (docs/images.md)" .Values.trainerImage }}
{{- end }}

{{/* Monitors and rules: what a Prometheus may choose them by. */}}
{{- define "oarlock.monitorLabels" -}}
{{ include "oarlock.labels" . }}
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The label `job` of what Prometheus reads from the operator. */}}
{{- define "oarlock.scraped" -}}
{{ .Release.Namespace }}/{{ include "oarlock.name" . }}-operator
{{- end }}

{{/* The page's pod. */}}
{{- define "oarlock.webLabels" -}}
{{ include "oarlock.webSelector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "oarlock.webSelector" -}}
app.kubernetes.io/name: oarlock
app.kubernetes.io/component: web
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* What every pod of the release asks: names, and the API server. */}}
{{- define "oarlock.toApiServer" -}}
# Names.
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
# The API server.
- ports:
  {{- range .Values.networkPolicy.apiServerPorts }}
  - {port: {{ . }}}
  {{- end }}
  {{- with .Values.networkPolicy.apiServer }}
  to: {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
