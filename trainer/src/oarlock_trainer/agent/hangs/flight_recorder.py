"""torch's flight recorder: the last collectives of each rank, which NCCL calls were begun and never ended.

torch (2.9 and later) records them anyway and dumps them when a collective times out; here the agent asks earlier. Each
rank's monitor thread opens `<pipe stem><rank>.pipe` when its first NCCL group is made, looks into it once a second, and
then writes `<dump stem><rank>`, a pickle that `torch.distributed.flight_recorder.fr_trace` reads.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DUMP = "nccl-trace-rank-"
_PIPE = "ask-rank-"
_STEMS = {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE": _PIPE, "TORCH_FR_DUMP_TEMP_FILE": _DUMP}
_SETTINGS = {"TORCH_FR_BUFFER_SIZE": "2000", "TORCH_NCCL_DUMP_ON_TIMEOUT": "1"}
"""torch's own defaults, said aloud: without the second the pipe is looked into once in eight minutes."""


class FlightRecorder:
    """The recorders of a node's ranks, below a local folder.

    Where there is nothing to record (`wanted` is False: no NCCL), no room for pipes, or the job set the stems in
    `inherited` itself and so collects its dumps, nothing is done.
    """

    def __init__(self, folder: Path, inherited: Mapping[str, str], *, wanted: bool) -> None:
        own = _STEMS.keys() & inherited.keys()
        self._folder = folder if wanted and not own and _can_hold_pipes(folder) else None
        self._inherited = inherited
        self._asked: set[int] = set()
        self.forget()  # what an earlier agent left there is of other ranks

    @property
    def environment(self) -> dict[str, str]:
        """Variables of all ranks."""
        if self._folder is None:
            return {}
        stems = {name: str(self._folder / stem) for name, stem in _STEMS.items()}
        return {name: self._inherited.get(name, value) for name, value in (_SETTINGS | stems).items()}

    def ask(self, ranks: Iterable[int]) -> None:
        """Have the ranks dump. One that has no NCCL group yet has nothing to tell, and no pipe."""
        if self._folder is None:
            return
        for rank in ranks:
            with contextlib.suppress(OSError):
                pipe = os.open(self._folder / f"{_PIPE}{rank}.pipe", os.O_WRONLY | os.O_NONBLOCK)
                try:
                    os.write(pipe, b"1")
                    self._asked.add(rank)
                finally:
                    os.close(pipe)

    @property
    def pending(self) -> bool:
        """Whether a rank was asked that has not written yet."""
        return len(self.dumps()) < len(self._asked)

    def dumps(self) -> list[Path]:
        """What was written."""
        return sorted(self._folder.glob(f"{_DUMP}*")) if self._folder else []

    def forget(self) -> None:
        """Remove what was written, and the pipes of ranks that are gone."""
        self._asked.clear()
        for stem in _STEMS.values():
            for path in self._folder.glob(f"{stem}*") if self._folder else ():
                path.unlink(missing_ok=True)


def _can_hold_pipes(folder: Path) -> bool:
    """Tell whether ranks can make their pipes there: torch ends a process that can't."""
    probe = folder / "probe.pipe"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.unlink(missing_ok=True)
        os.mkfifo(probe)
        probe.unlink()
    except OSError:
        return False
    return True
