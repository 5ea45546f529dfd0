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

{{- define "oarlock.image" -}}
{{- with .Values.image.digest -}}
{{ $.Values.image.repository }}@{{ . }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Monitors and rules: what a Prometheus may choose them by. */}}
{{- define "oarlock.monitorLabels" -}}
{{ include "oarlock.labels" . }}
{{- with .Values.monitoring.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}
