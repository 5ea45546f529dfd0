"""The rank host, and rank 1 is slow: each of its forward passes takes a fifth of a second more.

python slow_host.py --control FD --parent PID
"""

from __future__ import annotations

import os
import runpy
import time
from typing import Any

from oarlock_trainer.models.flux import loss

_losses = loss.sample_losses


def _slow(*args: Any, **options: Any) -> Any:
    if os.environ["RANK"] == "1":
        time.sleep(0.2)
    return _losses(*args, **options)


if __name__ == "__main__":
    loss.sample_losses = _slow  # type: ignore[assignment]
    runpy.run_module("oarlock_trainer.ranks.rank_host", run_name="__main__", alter_sys=True)
