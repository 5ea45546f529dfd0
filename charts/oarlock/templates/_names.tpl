{{- define "oarlock.labels" -}}
app.kubernetes.io/name: oarlock
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "oarlock.selector" -}}
app.kubernetes.io/name: oarlock
app.kubernetes.io/component: operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What the operator does, no more: tests compare this with the calls that it makes. */}}
{{- define "oarlock.rules" -}}
- apiGroups: [oarlock.dev]
  resources: [trainingjobs]
  # delete: finished jobs whose ttlSecondsAfterFinished is over.
  verbs: [get, list, watch, delete]
- apiGroups: [oarlock.dev]
  resources: [trainingjobs/status]
  verbs: [update]
- apiGroups: [oarlock.dev]
  # An owner reference with blockOwnerDeletion needs it where the cluster enforces that.
  resources: [trainingjobs/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, create, patch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  # list: why a pod does not start, in its kubelet's words.
  verbs: [create, list]
{{- end }}
