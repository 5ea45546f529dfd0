// Command argo-command does what the commands of that name of Argo's CLI do, without a server and its pages:
//
//	argo-command stop WORKFLOW
//	argo-command retry WORKFLOW
//
// The cluster is that of KUBECONFIG, the namespace the kubeconfig's own. Argo's CLI is made of the same client library.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/argoproj/argo-workflows/v3/pkg/apiclient"
	"github.com/argoproj/argo-workflows/v3/pkg/apiclient/workflow"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 2 {
		return fmt.Errorf("argo-command stop WORKFLOW or argo-command retry WORKFLOW")
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{})
	namespace, _, err := config.Namespace()
	if err != nil {
		return err
	}
	ctx, client, err := apiclient.NewClientFromOpts(apiclient.Opts{
		Context:              context.Background(),
		AuthSupplier:         func() string { return "" },
		ClientConfigSupplier: func() clientcmd.ClientConfig { return config },
	})
	if err != nil {
		return err
	}
	workflows := client.NewWorkflowServiceClient()
	switch verb, name := arguments[0], arguments[1]; verb {
	case "stop":
		_, err = workflows.StopWorkflow(ctx, &workflow.WorkflowStopRequest{Name: name, Namespace: namespace})
	case "retry":
		_, err = workflows.RetryWorkflow(ctx, &workflow.WorkflowRetryRequest{Name: name, Namespace: namespace})
	default:
		err = fmt.Errorf("there is no %q here: stop or retry", verb)
	}
	return err
}
