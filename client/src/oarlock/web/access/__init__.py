"""Who asks: on a laptop whoever has the printed link, as the kubeconfig's user; in a cluster whoever has a token."""
