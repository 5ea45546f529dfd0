"""Another agent of the gang, as one that asks it for parts: what it says is bounded, and counts only with the gang's key.

A name may stand for two pods: a lost one that is not gone yet, and the next of its rank. So each copy begins with the
question for steps, which goes to all addresses, and goes on at the one whose signed answer tells of the latest round.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from typing import TYPE_CHECKING, Any, NamedTuple

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


class Step(NamedTuple):
    """A step of training, and how many places the round had that made its state."""

    step: int
    size: int


class Peer:
    """The agent of node `rank`, at `address`: (host, port). Only one thread may ask."""

    def __init__(self, rank: int, address: Address, key: bytes) -> None:
        self.rank = rank
        self._name, self._key = address, key
        self._address: Address | None = None
        """The one that answered last."""

    def steps(self, owner: int, *, round_: int | None = None) -> tuple[int, list[Step]]:
        """The round that it is in, and of which steps it has all parts of place `owner`, newest first. Raises PeerError.

        Looks its name up; the other questions go to the address that is found here. `round_`: whoever is in it is taken
        without asking at another address.
        """
        found: dict[Address, tuple[int, list[Step]]] = {}
        wrong: PeerError | None = None
        for address in self._addresses():
            self._address = address
            try:
                found[address] = self._steps(owner)
            except PeerError as error:
                wrong = error
                continue
            if found[address][0] == round_:
                break
        if not found:
            raise wrong or PeerError(f"pod {self.rank}: {self._name[0]} has no address")
        self._address = max(found, key=lambda address: found[address])
        return found[self._address]

    def _addresses(self) -> list[Address]:
        """What its name stands for now, the one that answered last before all others."""
        try:
            told = socket.getaddrinfo(*self._name, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise PeerError(f"pod {self.rank}: {self._name[0]}: {error}") from error
        found = {(str(place[0]), int(place[1])) for *_, place in told}
        return sorted(found, key=lambda address: (address != self._address, address))

    def _steps(self, owner: int) -> tuple[int, list[Step]]:
        said = self._words(steps_path(self.rank, owner), 4096)
        try:
            return int(said["round"]), sorted(
                (Step(int(step), int(size)) for step, size in said["steps"]), reverse=True
            )
        except (KeyError, TypeError, ValueError) as error:
            raise PeerError(f"pod {self.rank} says what is no list of steps: {error}") from error

    def manifest(self, step: int, rank: int, *, world: int) -> Any:
        """What it has as the manifest of one of `world` ranks' parts, parsed, and not looked at. Raises PeerError."""
        return self._words(manifest_path(self.rank, step, rank, world=world), MOST_WORDS)

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
        host, port = self._address or self._name
        connection = http.client.HTTPConnection(host, port, timeout=_SECONDS)
        try:
            connection.request("GET", target)
            answer = connection.getresponse()
            said = answer.read(most + 1)
        except (OSError, http.client.HTTPException, UnicodeError) as error:
            raise PeerError(f"pod {self.rank} at {host}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise PeerError(f"pod {self.rank} answers {answer.status}: {said[:200].decode(errors='replace').strip()}")
        if len(said) > most:
            raise PeerError(f"pod {self.rank} answers more than {most} bytes")
        return said
