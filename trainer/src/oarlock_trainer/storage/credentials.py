"""Credentials of S3 connections out of the environment: the operator maps the keys of a Secret into variables.

Pure: the environment comes in as an argument, and no value goes anywhere but into `Keys`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from oarlock_api.contract.secrets import S3_KEY_ID, S3_SECRET_KEY, S3_TOKEN, secret_variable
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from oarlock_api.location import S3Connection


@dataclass(frozen=True, slots=True)
class Keys:
    """Credentials that a Secret holds; an empty session token is none. Its text shows no secret."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)


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
        key: environment.get(secret_variable(secret, key), "").strip() for key in (S3_KEY_ID, S3_SECRET_KEY, S3_TOKEN)
    }
    if missing := [key for key in (S3_KEY_ID, S3_SECRET_KEY) if not values[key]]:
        raise ConfigurationError(
            f"training.s3Connections[{connection}].credentialsSecretRef: the Secret {secret} gives no "
            f"{' and no '.join(missing)}. Add what is missing to the Secret and start the job again; without "
            f"credentialsSecretRef the standard credential chain is used. (Variables of this process: "
            f"{', '.join(secret_variable(secret, key) for key in missing)})"
        )
    return Keys(values[S3_KEY_ID], values[S3_SECRET_KEY], values[S3_TOKEN])
