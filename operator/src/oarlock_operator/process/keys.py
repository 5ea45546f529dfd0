"""The operator's own key, which those of all gangs are derived from: read at the start of each term.

From a file, or from a Secret that the operator makes in its own namespace and leaves for ever: a restart, an upgrade or a
chart that is rendered anew changes nothing. Without the right to make Secrets gangs have no keys, and that is said.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import secrets
from pathlib import Path

import structlog

from oarlock_api.contract.gang_key import KEY_FIELD, LEAST_BYTES
from oarlock_operator.kube.api_error import ApiError, Conflict, NotFound
from oarlock_operator.kube.cluster import Cluster, Json

log = structlog.get_logger(__name__)

OWN_TYPE = "oarlock.dev/operator-key"
Keys = tuple[bytes, ...]
"""The first is for new pods, the others are those of pods that still run."""


class UnusableKeyError(Exception):
    """The key is there, and cannot be used. The message says where and why."""


async def gang_keys(cluster: Cluster, *, file: Path | None, namespace: str, name: str) -> Keys:
    """The keys of gangs, none where gangs are to have none. `namespace` and `name` are the own Secret's.

    Raises ApiError where the API server does not answer, UnusableKeyError where the key is there and none.
    """
    if file:
        try:
            return parse_keys(await asyncio.to_thread(file.read_text), where=str(file))
        except (OSError, UnicodeDecodeError) as error:
            raise UnusableKeyError(f"{file} cannot be read: {error}") from error
    try:
        secret = await _own_secret(cluster, f"/api/v1/namespaces/{namespace}/secrets", name)
    except ApiError as error:
        if error.status != 403:
            raise
        log.warning(
            "gangs have no keys", reason=str(error), hint="set key_file, or grant get and create of that Secret"
        )
        return ()
    where = f"the Secret {namespace}/{name}"
    try:
        body = base64.b64decode((secret.get("data") or {}).get(KEY_FIELD, ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise UnusableKeyError(f"{where} cannot be read: {error}") from error
    return parse_keys(body, where=where)


def parse_keys(body: str, *, where: str) -> Keys:
    """Keys, one a line. Raises UnusableKeyError where there is none, or one is too short to be drawn by chance."""
    keys = tuple(line.strip().encode() for line in body.splitlines() if line.strip())
    if not keys:
        raise UnusableKeyError(
            f"{where} holds no key: write one line of {LEAST_BYTES} characters or more, drawn by chance"
        )
    if any(len(key) < LEAST_BYTES for key in keys):
        raise UnusableKeyError(
            f"{where} holds a key of fewer than {LEAST_BYTES} characters: draw a longer one by chance"
        )
    return keys


async def _own_secret(cluster: Cluster, path: str, name: str) -> Json:
    try:
        return await cluster.get(f"{path}/{name}")
    except NotFound:
        pass
    made = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": name},
        "type": OWN_TYPE,
        "data": {KEY_FIELD: base64.b64encode(secrets.token_hex(LEAST_BYTES).encode()).decode()},
    }
    try:
        return await cluster.create(path, made)
    except Conflict:  # by the other operator, just now
        return await cluster.get(f"{path}/{name}")
