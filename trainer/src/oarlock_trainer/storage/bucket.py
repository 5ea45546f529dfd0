"""One bucket of one service: requests that are asked again where that helps, and errors that say what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from oarlock_trainer.storage.s3_errors import S3_ERRORS, explained, is_passing
from oarlock_trainer.storage.service import client, turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.storage.patience import Patience
    from oarlock_trainer.storage.service import Service
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A bucket by its name. `field` is the job's field that names it, for messages."""

    service: Service
    name: str
    field: str
    patience: Patience

    def ask(self, request: Callable[[Any], _Answer], *, doing: str, name: str = "") -> _Answer:
        """What `request` makes of the client. `doing` something with the object `name`, for messages.

        Raises FileNotFoundError, ConfigurationError or StorageError.
        """

        def once() -> _Answer:
            with turn(self.service):  # for each try: who waits before the next one is in nobody's way
                return request(client(self.service))

        try:
            return self.patience.ask(once, again=is_passing)
        except S3_ERRORS as error:
            raise explained(
                error, doing=doing, name=name, bucket=self.name, service=self.service, field=self.field
            ) from error
