"""The pod's status: /status, /metrics and /healthz, and who may read them."""
