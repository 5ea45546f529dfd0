"""The Secret with the key of a job's gangs, from its first attempt to its end: agents sign with what follows from it.

Its name says which key it holds without saying the key: another one of the operator's gives another name, so that the next
attempt has a Secret that fits, and nothing ever has to be read or changed. The operator may create Secrets and nothing else.
"""

from __future__ import annotations

import base64
from typing import Any

from oarlock_api.contract.gang_key import KEY_FIELD, SECRET_TYPE, fingerprint, job_key
from oarlock_operator.manifests.ownership import job_labels, owner_reference
from oarlock_operator.model.observation import Job


def gang_key(job: Job, keys: tuple[bytes, ...], *, nodes: int) -> dict[str, Any] | None:
    """The Secret of a job; None where its gangs have no key: one node has nobody to talk to."""
    if not keys or nodes == 1:
        return None
    key = job_key(keys[0], job.uid)
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": f"{job.name}-key-{fingerprint(key)}",
            "namespace": job.namespace,
            "labels": job_labels(job),
            "ownerReferences": [owner_reference(job)],
        },
        "type": SECRET_TYPE,
        "immutable": True,
        "data": {KEY_FIELD: base64.b64encode(key.hex().encode()).decode()},
    }
