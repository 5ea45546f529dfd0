"""The built-in trainer's rank, disturbed as the environment of its attempt says; without a word there, it is as it ships.

    python -m oarlock_trainer.ranks.rank_host --program disturbed:main

OARLOCK_PAUSE: while this file exists, no file of a storage is opened; each open that had to wait adds a line to the file's
namesake that ends in .waited. SLOW_RANK: each forward pass of this rank takes a fifth of a second more. WRITE_DOWN: the
arithmetic is float32, and what each step computes is written below this folder. DIES "before 6" or "after 6": in the first
round rank 1 is killed at the optimizer's update of step 6, before or after it. "drawing": as it begins its first picture.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, BinaryIO

from float32 import compute_in_float32, write_down

from oarlock_api.contract.environment import ROUND
from oarlock_trainer.loop import train
from oarlock_trainer.storage.local import LocalFiles
from oarlock_trainer.validation import validation


def main() -> int:
    """Run this rank."""
    if pause := os.environ.get("OARLOCK_PAUSE"):
        _pause(Path(pause))
    if os.environ.get("SLOW_RANK") == os.environ["RANK"]:
        _slow()
    moment = os.environ.get("DIES")
    if moment and (os.environ["RANK"], os.environ.get(ROUND, "1")) == ("1", "1"):
        when, _, step = moment.partition(" ")
        if when == "drawing":
            validation.denoise = _be_killed
        else:
            _die(int(step), before=when == "before")
    if folder := os.environ.get("WRITE_DOWN"):
        compute_in_float32()
        write_down(Path(folder))
    return train.main()


def _pause(pause: Path) -> None:
    opened = LocalFiles.open

    def open_(files: LocalFiles, name: str) -> BinaryIO:
        if pause.exists():
            while pause.exists():
                time.sleep(0.05)
            with pause.with_suffix(".waited").open("a") as waited:
                waited.write(f"{name}\n")
        return opened(files, name)

    LocalFiles.open = open_  # type: ignore[method-assign]


def _slow() -> None:
    losses = train.sample_losses

    def slow(*arguments: Any, **options: Any) -> Any:
        time.sleep(0.2)
        return losses(*arguments, **options)

    train.sample_losses = slow


def _die(step: int, *, before: bool) -> None:
    gradients = train._gradients

    def last(session: Any, batch: Any, done: int, *arguments: Any) -> Any:
        told = gradients(session, batch, done, *arguments)
        update = session.engine.step

        def dying(rate: float) -> None:
            if not before:
                update(rate)
            _be_killed()

        if done + 1 == step:
            session.engine.step = dying
        return told

    train._gradients = last


def _be_killed(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)
