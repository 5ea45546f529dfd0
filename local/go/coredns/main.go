// Command coredns is CoreDNS with the few plugins that a cluster's own names need.
//
// Leaving out the clouds' plugins makes the build several times faster, and so do the versions in go.mod: it is the newest
// CoreDNS whose libraries are no newer than Kubernetes' own, so that those are compiled once for both.
package main

import (
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	coremain.Run()
}
