//go:build tools

// Package tools names what this module exists for: Kueue's controller, which queues pods.
package tools

import _ "sigs.k8s.io/kueue/cmd/kueue"
