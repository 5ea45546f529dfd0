"""Files below a prefix of an S3 bucket.

A prefix is a folder: `photos` holds photos/a.jpg and not photos2/a.jpg, with or without a slash at its end. The service's
promises are ours: an object is there as a whole or not at all, and whoever lists after a write sees it (S3, R2, MinIO).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, BinaryIO

from botocore.exceptions import ClientError

from oarlock_trainer.runtime.errors import StorageError, storage
from oarlock_trainer.runtime.patience import Patience
from oarlock_trainer.storage.bucket import S3Bucket
from oarlock_trainer.storage.files import FileEntry
from oarlock_trainer.storage.hedge import Hedge
from oarlock_trainer.storage.ranged_file import ranged_file
from oarlock_trainer.storage.s3_errors import TornError, status_of
from oarlock_trainer.storage.s3_upload import put

if TYPE_CHECKING:
    from pathlib import Path

    from oarlock_trainer.storage.service import Service

_HEDGED_BYTES = 2 << 20
"""A latent or a caption's embedding. A larger read takes its time by its size: a second one would share the line with it."""
_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class S3Files:
    """The objects below `prefix` of a bucket; an empty prefix is the whole bucket. `field` of the job names it."""

    def __init__(
        self,
        service: Service,
        bucket: str,
        *,
        prefix: str = "",
        field: str,
        patience: Patience | None = None,
        hedge: Hedge | None = None,
    ) -> None:
        self._bucket = S3Bucket(service=service, name=bucket, field=field, patience=patience or Patience())
        folder = prefix.strip("/")
        self._prefix = f"{folder}/" if folder else ""
        self._hedge = hedge or Hedge()

    @property
    def where(self) -> str:
        """s3://bucket/prefix and the service."""
        return f"s3://{self._bucket.name}/{self._prefix} at {self._bucket.service.where}"

    def list(self) -> list[FileEntry]:
        """One request for each thousand objects, one after the other: a page's name is in the one before."""
        found: list[FileEntry] = []
        asked: dict[str, Any] = {"Bucket": self._bucket.name, "Prefix": self._prefix}
        while True:
            page = self._bucket.ask(lambda s3: s3.list_objects_v2(**asked), doing="listing", name=self._prefix)
            found += [
                FileEntry(name, one["Size"], _version(one))
                for one in page.get("Contents", ())
                if _is_visible(name := one["Key"].removeprefix(self._prefix))
            ]
            if not page["IsTruncated"]:
                return sorted(found)
            asked["ContinuationToken"] = page["NextContinuationToken"]

    def find(self, name: str) -> FileEntry | None:
        """One object, None where there is none."""
        key = self._prefix + name
        try:
            answer = self._bucket.ask(lambda s3: self._head(s3, key), doing="looking for", name=key)
        except FileNotFoundError:
            return None
        return FileEntry(name, answer["ContentLength"], _version(answer))

    def read(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes from `start`. Small ranges are hedged."""
        return self._read(name, start, length)

    def open(self, name: str) -> BinaryIO:
        """A file that reads ranges, all of one version: a StorageError where the object is replaced meanwhile."""
        entry = self.find(name)
        if entry is None:
            raise FileNotFoundError(2, f"no such object in {self.where}", name)
        return ranged_file(entry.size, lambda start, length: self._read(name, start, length, entry.version))

    def write(self, name: str, content: bytes) -> None:
        """Create or replace an object in one piece."""
        view = memoryview(content)
        put(
            self._bucket,
            self._prefix + name,
            size=len(content),
            part=lambda start, length: bytes(view[start : start + length]),
        )

    def upload(self, name: str, file: Path) -> None:
        """Send a file of this machine, in parts where it is large."""

        def part(start: int, length: int) -> bytes:
            with storage(f"reading {file}"), file.open("rb") as source:
                source.seek(start)
                return source.read(length)

        put(self._bucket, self._prefix + name, size=file.stat().st_size, part=part)

    def remove(self, name: str) -> None:
        """Remove an object; fine where there is none."""
        key = self._prefix + name
        self._bucket.ask(lambda s3: s3.delete_object(Bucket=self._bucket.name, Key=key), doing="removing", name=key)

    def _read(self, name: str, start: int, length: int | None, version: str | None = None) -> bytes:
        key = self._prefix + name

        def get(s3: Any) -> bytes:
            return self._get(s3, key, start, length, version)

        if length is not None and 0 < length <= _HEDGED_BYTES:
            return self._bucket.ask_hedged(get, self._hedge, size=length, doing="reading", name=key)
        return self._bucket.ask(get, doing="reading", name=key)

    def _get(self, s3: Any, key: str, start: int, length: int | None, version: str | None = None) -> bytes:
        # No range can be empty: of a byte none is kept.
        asked = f"bytes={start}-" if length is None else f"bytes={start}-{start + max(length, 1) - 1}"
        condition = {"IfMatch": version} if version else {}
        try:
            answer = s3.get_object(Bucket=self._bucket.name, Key=key, Range=asked, **condition)
        except ClientError as error:
            if status_of(error) == 416:
                return b""  # the object ends before `start`
            if status_of(error) == 412:
                raise StorageError(
                    f"s3://{self._bucket.name}/{key} was replaced while it was read: read it again"
                ) from error
            raise
        content: bytes = answer["Body"].read()
        told = answer.get("ContentRange", "nothing that tells its range")
        parts = _RANGE.fullmatch(told)
        if parts is None or not _is_whole(parts, len(content), start, length):
            raise TornError(asked=asked, got=len(content), told=told)
        return content if length != 0 else b""

    def _head(self, s3: Any, key: str) -> Any:
        try:
            return s3.head_object(Bucket=self._bucket.name, Key=key)
        except ClientError as error:
            if not 400 <= status_of(error) < 500:
                raise
            # An answer to HEAD has no body that tells a missing bucket, an expired token, or the region to sign for: the
            # same as a GET has, and botocore then follows to the region.
            self._get(s3, key, 0, 1)
            return s3.head_object(Bucket=self._bucket.name, Key=key)


def _is_whole(told: re.Match[str], got: int, start: int, length: int | None) -> bool:
    first, last, total = (int(number) for number in told.groups())
    end = total if length is None else min(start + max(length, 1), total)
    return (first, last + 1) == (start, end) and got == end - start


def _version(answer: Any) -> str:
    return str(answer["ETag"])


def _is_visible(name: str) -> bool:
    # Consoles make empty objects with a slash at the end, to show folders.
    return not name.endswith("/") and not any(part.startswith(".") for part in name.split("/"))
