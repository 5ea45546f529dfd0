{{/* What the operator does in a namespace, no more and no less: tests/chart compares this with what it really asks for. */}}
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
  # get: whose a pod is that has a name which one of ours is to have.
  resources: [pods]
  verbs: [get, list, watch, create, delete]
- apiGroups: [""]
  resources: [services]
  verbs: [get, create, patch]
{{- if .Values.gangKeys.enabled }}
- apiGroups: [""]
  # One with the key of each gang of several nodes, which is never read; an admission policy holds it to those.
  resources: [secrets]
  verbs: [create]
{{- end }}
{{- if .Values.jobNetworkPolicies.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create]
{{- end }}
- apiGroups: [""]
  resources: [events]
  # list: why a pod does not start, in its kubelet's words.
  verbs: [create, list]
{{- end }}
