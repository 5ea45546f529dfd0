//go:build tools

// Package tools names what this module exists for: JobSet's controller, which benchmarks measure beside the operator.
package tools

import _ "sigs.k8s.io/jobset"
