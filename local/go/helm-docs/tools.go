//go:build tools

// Package tools names what this module exists for: helm-docs, which writes the chart's README.
package tools

import _ "github.com/norwoodj/helm-docs/cmd/helm-docs"
