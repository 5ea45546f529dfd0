//go:build tools

// Package tools names what this module exists for: the scheduler with the plugin Coscheduling, which places gangs.
package tools

import _ "sigs.k8s.io/scheduler-plugins/cmd/scheduler"
