"""The jobs of a run: a few names in a few namespaces, of several sizes, with graces that a run can wait for."""

from __future__ import annotations

import random
from typing import Any

Json = dict[str, Any]
NAMESPACES = ("red", "green", "blue")
NAMES = ("one", "two", "three", "four")
REGISTRIES = ("registry.example.com", "elsewhere.example.com")
"""Of a program of somebody's own from the second, no word is believed."""
TEARDOWN_SECONDS = 4
GRACE_SECONDS = 3


def job(namespace: str, name: str, chance: random.Random, *, port: int) -> Json:
    """A TrainingJob whose pods answer at `port`.

    One in four trains on the CPU; some have a program of their own, some little patience.
    """
    gpus = chance.choice((0, 2, 4, 8))
    own = gpus == 0 or chance.random() < 0.3
    training = {
        "model": {"family": "Flux1", "path": "/output/models/tiny"},
        "steps": 100,
        "data": {"datasets": [{"name": "photos", "source": {"path": "/output/photos"}}]},
    }
    recovery = {
        "backoffSeconds": 1,
        "maxBackoffSeconds": 3,
        "faultGracePeriodSeconds": chance.choice((1, 2)),
        "teardownSeconds": TEARDOWN_SECONDS,
    }
    if chance.random() < 0.8:
        recovery |= {
            "maxApplicationRestarts": 1000,
            "maxRestartsWithoutProgress": 1000,
            "maxInfrastructureRestarts": 1000,
        }
    return {
        "apiVersion": "oarlock.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "nodes": chance.choice((1, 2, 2, 3, 4)),
            "gpusPerNode": gpus,
            "output": {"nfs": {"server": "nfs.example.com", "path": f"/{namespace}/{name}"}},
            **({"custom": {"command": ["train"]}} if own else {"training": training}),
            "pod": {
                **({"image": f"{chance.choice(REGISTRIES)}/own:1"} if own else {}),
                "terminationGracePeriodSeconds": GRACE_SECONDS,
                "ports": {"status": port},
            },
            "scheduling": {"placementTimeoutSeconds": 20},
            "recovery": recovery,
        },
    }
