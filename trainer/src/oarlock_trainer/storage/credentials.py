"""Credentials of S3 connections out of the environment: the operator maps the keys of a Secret into variables.

Pure: the environment comes in as an argument, and no value goes anywhere but into `Keys`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.contract.secrets import secret_variable
from oarlock_trainer.errors import ConfigurationError
from oarlock_trainer.storage.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oarlock_api.location import S3Connection

_ACCESS_KEY_ID, _SECRET_ACCESS_KEY, _SESSION_TOKEN = "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"
"""Keys of a Secret, as spec.training.s3Connections[].credentialsSecretRef describes it."""


def variables(connections: Iterable[S3Connection]) -> frozenset[str]:
    """Names of the variables that hold the connections' credentials: ranks need these and no other secret."""
    return frozenset(
        secret_variable(connection.credentials_secret_ref.name, key)
        for connection in connections
        if connection.credentials_secret_ref
        for key in (_ACCESS_KEY_ID, _SECRET_ACCESS_KEY, _SESSION_TOKEN)
    )


def read_credentials(connections: Iterable[S3Connection], environment: Mapping[str, str]) -> dict[str, Keys]:
    """Keys by the connection's name, of those that name a Secret. The others use the standard credential chain.

    Raises ConfigurationError that names what is missing.
    """
    return {
        connection.name: _keys(connection.name, connection.credentials_secret_ref.name, environment)
        for connection in connections
        if connection.credentials_secret_ref
    }


def _keys(connection: str, secret: str, environment: Mapping[str, str]) -> Keys:
    # What `echo` put into a Secret ends with a line break, and nothing shows it.
    values = {
        key: environment.get(secret_variable(secret, key), "").strip()
        for key in (_ACCESS_KEY_ID, _SECRET_ACCESS_KEY, _SESSION_TOKEN)
    }
    if missing := [key for key in (_ACCESS_KEY_ID, _SECRET_ACCESS_KEY) if not values[key]]:
        raise ConfigurationError(
            f"training.s3Connections[{connection}].credentialsSecretRef: the Secret {secret} gives no "
            f"{' and no '.join(missing)}. Add what is missing to the Secret and start the job again; without "
            f"credentialsSecretRef the standard credential chain is used. (Variables of this process: "
            f"{', '.join(secret_variable(secret, key) for key in missing)})"
        )
    return Keys(values[_ACCESS_KEY_ID], values[_SECRET_ACCESS_KEY], values[_SESSION_TOKEN])
