"""From the locations that a job names to the files that lie there.

boto3 is imported with the first S3 location, and its clients are made with their first request: a process that is still
to fork has none, and a job without S3 pays for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.storage.credentials import read_credentials
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from oarlock_api.location import Location, S3Connection, S3Location
    from oarlock_trainer.runtime.job import Job
    from oarlock_trainer.storage.credentials import Keys
    from oarlock_trainer.storage.files import Files


@dataclass(frozen=True, slots=True, kw_only=True)
class Locations:
    """What opens the locations of one job: made once, and passed to all who read or write there.

    `credentials` are by the connection's name. `owner` is the UID of the job that writes. This process has at most
    `pool_size` requests to one S3 service under way, None = no limit.
    """

    connections: Sequence[S3Connection] = ()
    credentials: Mapping[str, Keys] = field(default_factory=dict)
    owner: str = ""
    pool_size: int | None = None
    paths: Mapping[str, str] = field(default_factory=dict)
    """Where a path of a pod lies on this machine."""

    def files_at(self, location: Location, field: str) -> Files:
        """The files below a location, which `field` of the job names.

        Raises ConfigurationError where it names no place. Nothing is asked for yet.
        """
        if location.path is not None:
            return LocalFiles(Path(location.path), field=f"{field}.path", owner=self.owner, paths=self.paths)
        if location.s3 is not None:
            return self._in_bucket(location.s3, field=f"{field}.s3")(location.s3.prefix or "")
        raise ConfigurationError(f"{field}: say where: set exactly one of path and s3")

    def file_at(self, location: Location, field: str) -> tuple[Files, str]:
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
            return self._in_bucket(location.s3, field=f"{field}.s3")(folder), name
        raise ConfigurationError(f"{field}: say where the file is: set exactly one of path and s3")

    def _in_bucket(self, location: S3Location, *, field: str) -> Callable[[str], Files]:
        """The files below any prefix of a location's bucket."""
        from oarlock_trainer.storage.s3 import S3Files  # noqa: PLC0415 - brings boto3
        from oarlock_trainer.storage.service import Service  # noqa: PLC0415 - as above

        connection = next((one for one in self.connections if one.name == location.connection), None)
        if connection is None:
            raise ConfigurationError(
                f"{field}.connection: {location.connection} is no entry of training.s3Connections; add it, or correct the "
                "name"
            )
        secret = connection.credentials_secret_ref
        service = Service(
            connection=connection.name,
            endpoint=connection.endpoint,
            region=connection.region,
            keys=self.credentials[connection.name] if secret else None,
            secret=secret.name if secret else "",
            pool_size=self.pool_size,
        )
        return lambda prefix: S3Files(service, location.bucket, prefix=prefix, field=field)


def locations_of(job: Job, environment: Mapping[str, str]) -> Locations:
    """A rank's. s3MaxConnections counts a node's, of which each rank has its share.

    Raises ConfigurationError where the environment has not the keys of a Secret that a connection names.
    """
    connections, pool = job.training.s3_connections, job.training.data.tuning.s3_max_connections
    return Locations(
        connections=connections,
        credentials=read_credentials(connections, environment),
        owner=job.file.job_uid,
        pool_size=None if pool is None else max(pool // job.rank_info.local_world_size, 1),
        paths=job.file.paths,
    )
