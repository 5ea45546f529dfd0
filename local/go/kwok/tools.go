//go:build tools

// Package tools names what this module exists for: kwok, which plays the kubelets of nodes that are not there.
package tools

import _ "sigs.k8s.io/kwok/cmd/kwok"
