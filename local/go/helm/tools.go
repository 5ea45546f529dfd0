//go:build tools

// Package tools names what this module exists for: helm, which renders and installs the chart.
package tools

import _ "helm.sh/helm/v4/cmd/helm"
