// Command kubernetes is etcd and the Kubernetes components in one binary.
//
// It runs the component that the name it was called by says, or else the one that its first argument says:
// sharing one link step and one copy of the Kubernetes libraries takes a third of the time and of the
// disk that six binaries would.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlerrors "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// components in the order that the usage line shows.
var components = []struct {
	name string
	main func()
}{
	{"etcd", func() { etcdmain.Main(os.Args) }},
	{"kube-apiserver", func() { run(apiserver.NewAPIServerCommand()) }},
	{"kube-controller-manager", func() { run(controllers.NewControllerManagerCommand()) }},
	{"kube-scheduler", func() { run(scheduler.NewSchedulerCommand()) }},
	{"kubelet", func() { run(kubelet.NewKubeletCommand(context.Background())) }},
	// kubectl prints its errors itself, with hints; the servers log theirs.
	{"kubectl", func() { kubectlerrors.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) }},
}

func run(command *cobra.Command) {
	os.Exit(cli.Run(command))
}

// start runs the component of that name and reports whether there is one.
func start(name string) bool {
	for _, component := range components {
		if component.name == name {
			component.main()
			return true
		}
	}
	return false
}

func main() {
	if start(filepath.Base(os.Args[0])) {
		return
	}
	if len(os.Args) > 1 && slices.Contains(names(), os.Args[1]) {
		os.Args = os.Args[1:]
		start(os.Args[0])
		return
	}
	fmt.Fprintf(os.Stderr, "usage: %s COMPONENT ARGS, or a link to it named after one of: %s\n", os.Args[0], strings.Join(names(), ", "))
	os.Exit(2)
}

func names() []string {
	var all []string
	for _, component := range components {
		all = append(all, component.name)
	}
	return all
}
