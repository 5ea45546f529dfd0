//go:build tools

// Package tools names what this module exists for: Volcano's scheduler and its controllers, which place gangs.
package tools

import (
	_ "volcano.sh/volcano/cmd/controller-manager"
	_ "volcano.sh/volcano/cmd/scheduler"
)
