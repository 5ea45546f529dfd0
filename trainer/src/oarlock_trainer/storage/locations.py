"""From a location of the job to the place for files that it names.

boto3 is imported with the first S3 location, and its clients are made with their first request: a process that is still
to fork has none, and a job without S3 pays for nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from oarlock_api.location import Location, S3Connection, S3Location
    from oarlock_trainer.storage.files import Files
    from oarlock_trainer.storage.keys import Keys


def files_at(
    location: Location,
    *,
    connections: Iterable[S3Connection],
    credentials: Mapping[str, Keys],
    field: str,
    pool_size: int | None = None,
    owner: str = "",
) -> Files:
    """The files below a location. `field` of the job names it; `credentials` are by the connection's name.

    `owner` is the UID of the job that writes there. This process has at most `pool_size` requests to its S3 service under
    way, None = no limit.
    Raises ConfigurationError where it names no place. Nothing is asked for yet.
    """
    if location.path is not None:
        return LocalFiles(Path(location.path), field=f"{field}.path", owner=owner)
    if location.s3 is not None:
        below = _service(location.s3, connections, credentials, field=f"{field}.s3", pool_size=pool_size)
        return below(location.s3.prefix or "")
    raise ConfigurationError(f"{field}: say where: set exactly one of path and s3")


def file_at(
    location: Location,
    *,
    connections: Iterable[S3Connection],
    credentials: Mapping[str, Keys],
    field: str,
    pool_size: int | None = None,
) -> tuple[Files, str]:
    """The one file that a location names, as `files_at` does: the place that it lies in, and its name there.

    Raises ConfigurationError where it names none. Nothing is asked for yet.
    """
    if location.path is not None:
        path = Path(location.path)
        return LocalFiles(path.parent, field=f"{field}.path"), path.name
    if location.s3 is not None:
        folder, _, name = (location.s3.prefix or "").strip("/").rpartition("/")
        if not name:
            raise ConfigurationError(f"{field}.s3.prefix: a whole bucket is no file: set it to the object's key")
        service = _service(location.s3, connections, credentials, field=f"{field}.s3", pool_size=pool_size)
        return service(folder), name
    raise ConfigurationError(f"{field}: say where the file is: set exactly one of path and s3")


def _service(
    location: S3Location,
    connections: Iterable[S3Connection],
    credentials: Mapping[str, Keys],
    *,
    field: str,
    pool_size: int | None,
) -> Callable[[str], Files]:
    """The place for files at any prefix of a location's bucket."""
    from oarlock_trainer.storage.s3 import S3Files  # noqa: PLC0415 - brings boto3
    from oarlock_trainer.storage.service import Service  # noqa: PLC0415

    connection = next((one for one in connections if one.name == location.connection), None)
    if connection is None:
        raise ConfigurationError(
            f"{field}.connection: {location.connection} is no entry of training.s3Connections; add it, or correct the name"
        )
    secret = connection.credentials_secret_ref
    service = Service(
        connection=connection.name,
        endpoint=connection.endpoint,
        region=connection.region,
        keys=credentials[connection.name] if secret else None,
        secret=secret.name if secret else "",
        pool_size=pool_size,
    )
    return lambda prefix: S3Files(service, location.bucket, prefix=prefix, field=field)
