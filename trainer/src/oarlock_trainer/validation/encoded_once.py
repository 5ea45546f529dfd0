"""What is encoded once, before the transformer is loaded: one file below the output, which a resumed run finds."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from oarlock_api.contract.layout import PRIVATE
from oarlock_trainer.runtime.atomic_write import replacing
from oarlock_trainer.runtime.errors import storage
from oarlock_trainer.runtime.file_modes import make_ordinary
from oarlock_trainer.runtime.heartbeat import alive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_trainer.engine.process_group import RankGroup

_FOLDER = f"{PRIVATE}/validation"


def encoded_once(
    output: Path,
    ranks: RankGroup,
    name: str,
    facts: Sequence[object],
    encode: Callable[[Callable[[], None]], dict[str, Tensor]],
    *,
    go_on: Callable[[], None],
) -> Path:
    """The file of what `encode` makes, of this name and these facts; rank 0 makes it where it is not there yet. Collective.

    `encode` calls what it is given often: a sign of life, and `go_on`, which may raise to stop.
    """
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
    file = output / _FOLDER / f"{name}-{digest}.safetensors"

    def work() -> None:
        if ranks.rank_info.is_leader and not file.is_file():
            _write(file, encode(alive(go_on)))
            if ranks.device.type == "cuda":
                import torch  # noqa: PLC0415

                torch.cuda.empty_cache()  # what the encoders held is wanted for the transformer

    ranks.shares(work, go_on)
    return file


def _write(file: Path, found: dict[str, Tensor]) -> None:
    from safetensors.torch import save_file  # noqa: PLC0415

    with storage(f"writing {file}"):
        file.parent.mkdir(parents=True, exist_ok=True)
        with replacing(file) as temporary:
            save_file(found, temporary)
        make_ordinary(file.parent)
