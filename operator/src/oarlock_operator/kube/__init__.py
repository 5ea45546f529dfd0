"""The Kubernetes API: requests, watches, Events, the Lease, and what goes wrong with them."""
