"""How the two ends of a link show each other that they know the attempt's key, and seal what they say from then on.

Each end draws a nonce, so that nothing that was said on one connection means anything on another one. A frame's seal
covers its direction and its place in the connection: none can be left out, said twice, or sent back. That rank 0 knows the
key, the seal of its welcome shows.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from oarlock_api.contract.gang_key import mac

if TYPE_CHECKING:
    from oarlock_trainer.agent.link.protocol import Hello

SEAL_BYTES = 33
"""What a seal adds to a line: 128 bits in hexadecimal, and a space."""


def nonce() -> str:
    """What this end adds to a connection's proofs."""
    return secrets.token_hex(16)


def signed(hello: Hello, key: bytes, challenge: str) -> Hello:
    """The hello with a nonce of its own and the proof for rank 0's challenge."""
    hello = replace(hello, nonce=nonce())
    return replace(hello, proof=_members(hello, key, challenge))


def is_of_a_member(hello: Hello, key: bytes, challenge: str) -> bool:
    """Whether whoever says the hello knows the key, and says it to this challenge."""
    return hmac.compare_digest(hello.proof.encode(), _members(hello, key, challenge).encode())


@dataclass(slots=True)
class Seal:
    """One end's seals of one connection: counts what it sent and what it read."""

    key: bytes
    ours: str
    theirs: str
    sent: int = 0
    read: int = 0

    def closed(self, lines: bytes) -> bytes:
        """Lines as they are to be sent."""
        return b"".join(self._close(line) for line in lines.splitlines(keepends=True))

    def opened(self, line: bytes) -> bytes | None:
        """The next line that came, without its newline and its seal; None where the seal is not the other end's."""
        said, _, line = line.partition(b" ")
        expected = _seal(self.key, self.theirs, self.read, line)
        self.read += 1
        return line if hmac.compare_digest(said, expected) else None

    def _close(self, line: bytes) -> bytes:
        sealed = _seal(self.key, self.ours, self.sent, line.rstrip(b"\n")) + b" " + line
        self.sent += 1
        return sealed


def seal_of(hello: Hello, key: bytes, challenge: str, *, leader: bool) -> Seal:
    """What seals all after this hello, for one end of its connection."""
    session = mac(key, "oarlock link session", challenge, hello.nonce, hello.rank)
    return Seal(session, *(("leader", "member") if leader else ("member", "leader")))


def _members(hello: Hello, key: bytes, challenge: str) -> str:
    claim = (hello.job_uid, hello.attempt, hello.rank, hello.agent, hello.nonce)
    later = (hello.incarnation,) if hello.incarnation > 1 else ()
    surge = ("surge",) if hello.surge else ()
    return mac(key, "oarlock link member", challenge, *claim, *later, *surge).hex()


def _seal(key: bytes, sender: str, place: int, line: bytes) -> bytes:
    return mac(key, sender, place, line).hex()[: SEAL_BYTES - 1].encode()
