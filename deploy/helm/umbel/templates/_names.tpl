{{- define "umbel.name" -}}
{{- /* the longest one, of a StatefulSet, has at most 52 characters */ -}}
{{- if gt (len .Release.Name) 42 }}{{ fail (printf "the name of a release has at most 42 characters, %s has %d: choose a shorter one" .Release.Name (len .Release.Name)) }}{{ end -}}
{{- printf "%s-%s" .Release.Name .component -}}
{{- end -}}

{{- define "umbel.match" -}}
app.kubernetes.io/name: umbel
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{- define "umbel.labels" -}}
{{ include "umbel.match" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "umbel.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end -}}

{{- define "umbel.pod" -}}
automountServiceAccountToken: false
enableServiceLinks: false
shareProcessNamespace: true  # a container's first process does not get signals that it has no handler for yet
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "umbel.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{- /* A value as text; helm writes large numbers as 1e+06. */ -}}
{{- define "umbel.text" -}}
{{- kindIs "string" . | ternary . (toJson .) | quote -}}
{{- end -}}

{{- define "umbel.secrets" -}}
{{- range . }}
- secretRef: {name: {{ . }}}
{{- end }}
{{- end -}}

{{- define "umbel.environment" -}}
- {name: HOME, value: /tmp}
{{- range $name, $value := . }}
- {name: {{ $name }}, value: {{ include "umbel.text" $value }}}
{{- end }}
{{- end -}}
