"""Another agent of the gang, as one that asks it for parts: what it says is bounded, and counts only with the gang's key."""

from __future__ import annotations

import http.client
import json
import time
from typing import TYPE_CHECKING, Any

from oarlock_api.contract import gang_key
from oarlock_trainer.agent.ring.parts_server import (
    ADDRESSEE,
    MOST_WORDS,
    PIECE,
    manifest_path,
    state_path,
    steps_path,
)

if TYPE_CHECKING:
    from oarlock_trainer.runtime.assignment import Address

_SECONDS = 5.0
"""Without a word from it: as long as it gives a client of its own."""


class PeerError(Exception):
    """It was not reached, or what it said is no answer. The message says which."""


class Peer:
    """The agent of node `rank`, at `address`: (host, port)."""

    def __init__(self, rank: int, address: Address, key: bytes) -> None:
        self.rank = rank
        self._address, self._key = address, key

    def steps(self, owner: int) -> tuple[int, list[int]]:
        """The round that it is in, and of which steps it has all of node `owner`'s parts, newest first. Raises PeerError."""
        said = self._words(steps_path(self.rank, owner), 4096)
        try:
            return int(said["round"]), sorted(map(int, said["steps"]), reverse=True)
        except (KeyError, TypeError, ValueError) as error:
            raise PeerError(f"pod {self.rank} says what is no list of steps: {error}") from error

    def manifest(self, step: int, rank: int) -> Any:
        """What it has as the manifest of a rank's part, parsed, and not looked at. Raises PeerError."""
        return self._words(manifest_path(self.rank, step, rank), MOST_WORDS)

    def piece(self, name: str, offset: int) -> bytes:
        """A file's bytes from `offset` on, PIECE of them or fewer. Raises PeerError."""
        return self._ask(gang_key.question(self._key, state_path(self.rank, name, offset), **self._now()), PIECE)

    def _words(self, path: str, most: int) -> Any:
        target = gang_key.question(self._key, path, **self._now())
        try:
            body = gang_key.answered(self._key, target, self._ask(target, most).decode())
            if body is None:
                raise PeerError(f"pod {self.rank} answers without the gang's key")
            return json.loads(body)
        except (ValueError, RecursionError) as error:
            raise PeerError(f"pod {self.rank} answers what is no answer: {error}") from error

    def _now(self) -> dict[str, Any]:
        return {"pod_uid": ADDRESSEE, "now": time.time()}

    def _ask(self, target: str, most: int) -> bytes:
        connection = http.client.HTTPConnection(*self._address, timeout=_SECONDS)
        try:
            connection.request("GET", target)
            answer = connection.getresponse()
            said = answer.read(most + 1)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise PeerError(f"pod {self.rank} at {self._address[0]}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise PeerError(f"pod {self.rank} answers {answer.status}: {said[:200].decode(errors='replace').strip()}")
        if len(said) > most:
            raise PeerError(f"pod {self.rank} answers more than {most} bytes")
        return said
