"""One bucket of one service: requests that are asked again where that helps, and errors that say what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from oarlock_trainer.storage.s3_errors import S3_ERRORS, explained, is_passing
from oarlock_trainer.storage.service import client, take_turn, turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from oarlock_trainer.runtime.patience import Patience
    from oarlock_trainer.storage.hedge import Hedge
    from oarlock_trainer.storage.service import Service
_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Bucket:
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

        return self._patiently(once, doing=doing, name=name)

    def ask_hedged(self, request: Callable[[Any], bytes], hedge: Hedge, *, size: int, doing: str, name: str) -> bytes:
        """As `ask`, for `size` bytes, with a second request for a late one where it needs to wait for no turn."""

        def within(give_back: Callable[[], None]) -> Callable[[], bytes]:
            def answer() -> bytes:
                try:
                    return request(client(self.service))
                finally:
                    give_back()  # by whoever loses, too, once its connection is free

            return answer

        def again() -> Callable[[], bytes] | None:
            turn_back = take_turn(self.service, wait=False)
            return within(turn_back) if turn_back else None

        def once() -> bytes:
            turn_back = take_turn(self.service, wait=True)
            assert turn_back is not None  # noqa: S101 - it was waited for
            return hedge.first(size, within(turn_back), again=again)

        return self._patiently(once, doing=doing, name=name)

    def _patiently(self, once: Callable[[], _Answer], *, doing: str, name: str) -> _Answer:
        try:
            return self.patience.ask(once, again=is_passing)
        except S3_ERRORS as error:
            raise explained(
                error, doing=doing, name=name, bucket=self.name, service=self.service, field=self.field
            ) from error
