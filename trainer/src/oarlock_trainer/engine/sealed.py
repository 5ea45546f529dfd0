"""Small objects from rank to rank: pickled, and read only if the gang's key has sealed them.

What is unpickled can run code, and gloo asks nobody who he is: so each object carries a proof of who sent it and in which
exchange, and is looked at before it is read. Without a key (one node, or an operator that gives none) nothing is sealed.
"""

from __future__ import annotations

import hmac
import pickle
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from oarlock_api.contract.gang_key import mac
from oarlock_trainer.runtime.errors import PeerLostError

if TYPE_CHECKING:
    from oarlock_trainer.runtime.job import RankInfo

_SEAL_BYTES = 32
_MOST_BYTES = 1 << 30
"""Of one rank's object, far more than any has."""


class Exchange:
    """One rank's part in exchanges, which all ranks make in the same order. `group` None: the default group."""

    def __init__(self, rank_info: RankInfo, group: dist.ProcessGroup | None, *, key: bytes | None) -> None:
        self._rank_info, self._group, self._key = rank_info, group, key
        self._turn = 0

    def gather(self, value: Any) -> list[Any]:
        """Every rank's value, in the order of ranks."""
        self._turn += 1
        own = self._closed(value)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self._rank_info.world_size)]
        dist.all_gather(sizes, torch.tensor([len(own)]), group=self._group)
        lengths = [_checked(size) for size in sizes]
        padded = own.ljust(max(lengths), b"\0")
        bodies = [torch.empty(len(padded), dtype=torch.uint8) for _ in lengths]
        dist.all_gather(bodies, _tensor(padded), group=self._group)
        told = [body.numpy().tobytes()[:length] for body, length in zip(bodies, lengths, strict=True)]
        return [self._opened(body, sender) for sender, body in enumerate(told)]

    def from_leader(self, value: Any) -> Any:
        """Rank 0's value; that of the others does not count."""
        self._turn += 1
        own = self._closed(value) if self._rank_info.is_leader else b""
        size = torch.tensor([len(own)])
        dist.broadcast(size, src=0, group=self._group)
        body = _tensor(own) if self._rank_info.is_leader else torch.empty(_checked(size), dtype=torch.uint8)
        dist.broadcast(body, src=0, group=self._group)
        return self._opened(body.numpy().tobytes(), 0)

    def _closed(self, value: Any) -> bytes:
        body = pickle.dumps(value)
        return self._seal(body, self._rank_info.rank) + body

    def _opened(self, told: bytes, sender: int) -> Any:
        seal = self._seal(body := told[_SEAL_BYTES:], sender) if self._key else b""
        if self._key and not hmac.compare_digest(told[:_SEAL_BYTES], seal):
            raise PeerLostError(
                f"what rank {sender} sent is not sealed with the gang's key: somebody else reaches the ranks' ports"
            )
        return pickle.loads(body if self._key else told)  # noqa: S301 - sealed by one of the gang

    def _seal(self, body: bytes, sender: int) -> bytes:
        return mac(self._key, "oarlock ranks", self._turn, sender, body) if self._key else b""


def _tensor(body: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(body), dtype=torch.uint8)


def _checked(size: torch.Tensor) -> int:
    length = int(size)
    if not 0 < length <= _MOST_BYTES:
        raise PeerLostError(f"a rank announced an object of {length} bytes: somebody else reaches the ranks' ports")
    return length
