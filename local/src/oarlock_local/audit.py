"""The API server's audit log: who asked for what, of ServiceAccounts that people give to pods, and of nobody known.

The cluster's own components are left out: theirs are nearly all requests, and nobody asks what they need.
"""

import json
from pathlib import Path

_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    # A request counts when it is answered, a watch when it begins.
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts", "system:unauthenticated"]},
        {"level": "None"},
    ],
}


def write_policy(path: Path) -> None:
    """Write the file that tells the API server what to log."""
    path.write_text(json.dumps(_POLICY))
