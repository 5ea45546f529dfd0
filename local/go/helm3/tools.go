//go:build tools

// Package tools names what this module exists for: the helm before the current one, which many still install charts with.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
