//go:build tools

// Package tools names what this module exists for: promtool, which checks alerts and tries them out on made-up series.
package tools

import _ "github.com/prometheus/prometheus/cmd/promtool"
