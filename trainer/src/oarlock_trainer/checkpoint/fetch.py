"""Bringing the newest copy of a checkpoint back into an output that has none: then it is one as all others.

Whole files are fetched, each rank its share of them, into the output: so whatever reads a checkpoint after that, now or in
later attempts, reads it there. A copy that is not what its manifest says is passed over for the next older one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import TYPE_CHECKING

from oarlock_api.contract.layout import CHECKPOINTS
from oarlock_trainer.checkpoint.commit import make_valid
from oarlock_trainer.checkpoint.format import inspect
from oarlock_trainer.engine.process_group import PREPROCESS_TIMEOUT, START_TIMEOUT
from oarlock_trainer.models.fetch_progress import FetchProgress
from oarlock_trainer.runtime import channel
from oarlock_trainer.runtime.atomic_write import TEMPORARY
from oarlock_trainer.runtime.errors import storage

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from oarlock_trainer.checkpoint.copies import Copies, Copy
    from oarlock_trainer.checkpoint.fence import Fence
    from oarlock_trainer.checkpoint.format import Checkpoint
    from oarlock_trainer.engine.process_group import RankGroup

_PIECE = 16 << 20


def fetch_newest(
    copies: Copies, output: Path, ranks: RankGroup, fence: Fence, *, job_uid: str, go_on: Callable[[], None]
) -> Checkpoint | None:
    """The newest whole copy as a checkpoint of the output; None where there is none. Collective.

    With `job_uid`, of that job alone. `go_on` is called while fetching, and may raise to stop. Raises StorageError,
    ConfigurationError and FencedError.
    """
    candidates = copies.newest(job_uid=job_uid)
    while copy := ranks.decide(lambda: next(candidates, None)):
        temporary = output / CHECKPOINTS / f"{TEMPORARY}{copy.name}{fence.owner.round_mark}"
        ranks.decide(lambda: _begin(temporary))  # noqa: B023 - called here
        ranks.bound_waiting(PREPROCESS_TIMEOUT)
        whole = ranks.shares(lambda: _fetch_share(copies, copy, temporary, ranks, go_on), go_on)  # noqa: B023
        ranks.bound_waiting(START_TIMEOUT)
        if all(whole):
            return ranks.decide(lambda: _complete(copy, temporary, fence))  # noqa: B023
        if ranks.rank_info.is_leader:
            channel.tell(f"{copy.name} in {copies.files.where} is damaged: the copy before it is taken")
    return None


def _begin(temporary: Path) -> None:
    with storage(f"making {temporary}"):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)


def _fetch_share(copies: Copies, copy: Copy, temporary: Path, ranks: RankGroup, go_on: Callable[[], None]) -> bool:
    """Fetch this rank's share of the files; whether they are what the manifest says."""
    share = copy.manifest.files[ranks.rank_info.rank :: ranks.rank_info.world_size]
    total, done, tell = sum(file.size for file in share), 0, FetchProgress(f"checkpoint {copy.name}")
    for facts in share:
        digest = hashlib.sha256()
        with storage(f"fetching {copy.name}"), (temporary / facts.name).open("wb") as file:
            for start in range(0, facts.size, _PIECE):
                go_on()
                try:
                    content = copies.files.read(f"{copy.name}/{facts.name}", start, min(_PIECE, facts.size - start))
                except FileNotFoundError:
                    return False
                file.write(content)
                digest.update(content)
                done += len(content)
                tell(done, total)
            file.flush()
            os.fsync(file.fileno())
        if digest.hexdigest() != facts.sha256:
            return False
    return True


def _complete(copy: Copy, temporary: Path, fence: Fence) -> Checkpoint | None:
    """Make it a checkpoint of the output, which the next attempt trusts though this one did not make it."""
    final = temporary.with_name(copy.name)
    with storage(f"fetching {copy.name}"):
        make_valid(temporary, final, manifest=copy.body, fence=fence)
        fence.take([copy.name])
    return inspect(final)
