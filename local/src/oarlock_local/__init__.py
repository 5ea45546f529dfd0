"""A real Kubernetes on this Linux machine, without Docker and without distribution packages.

The control plane, the kubelets and containerd are the released ones, built from their Go modules; every node has
its own network, mount, process, host name and IPC namespace. `oarlock_local.cluster` is the Python interface,
`oarlock-local` the command, `oarlock_local.pytest_plugin` the fixtures for tests.
"""
