"""A storage that pauses for a minute and a half while GPUs train, on all ranks, on half of them, and on all again."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

from oarlock_trainer.ranks import preload

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang, Run

preload.settle_environment()
import torch  # noqa: E402 - reads the environment that was just settled

COUNT = torch.cuda.device_count() if torch.cuda.is_available() else 0
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not COUNT, reason="needs a CUDA GPU"),
    pytest.mark.timeout(1800),
]
PAUSE_SECONDS = 90.0
"""Half of what reading the data is patient for."""
STEPS = 12


def run(gang: Gang, output: Path, pause: Path, *, ranks: int, attempt: int, turns: int) -> Run:
    """An attempt of 12 more steps, whose storage pauses once from the third on."""
    first = STEPS * (attempt - 1) + 3
    paused: list[threading.Timer] = []

    def on_event(event: dict[str, Any]) -> None:
        if event["event"] == "step" and event["step"] >= first and not paused:
            pause.touch()
            paused.append(threading.Timer(PAUSE_SECONDS, pause.unlink))
            paused[0].start()

    photos = {"name": "photos", "source": {"path": str(gang.pictures)}, "imageEmbeds": {"mode": "OnTheFly"}}
    training = gang.training(
        data=gang.data(datasets=[photos]),
        steps=STEPS * attempt,
        gradientAccumulation=turns,
        checkpoint={"intervalSteps": STEPS},
    )
    facts = {"ranks": ranks, "gpus_per_node": ranks if COUNT else 0, "attempt": attempt}
    found = gang.run(output, training, on_event=on_event, environment={"OARLOCK_PAUSE": str(pause)}, **facts)
    for timer in paused:
        timer.join()
    return found


def test_a_pause_of_90_s_ends_no_attempt_of_all_ranks_of_half_of_them_and_of_all_again(
    gpu_gang: Gang, tmp_path: Path, pause: Path
) -> None:
    half = max(COUNT // 2, 1)
    whole = 2 * half if COUNT > 1 else 1
    waited = pause.with_suffix(".waited")
    for attempt, (ranks, turns) in enumerate(((whole, 1), (half, whole // half), (whole, 1)), start=1):
        found = run(gpu_gang, tmp_path / "job", pause, ranks=ranks, attempt=attempt, turns=turns)
        assert set(found.codes.values()) == {0}, gpu_gang.log()
        assert sorted(found.losses) == list(range(STEPS * (attempt - 1) + 1, STEPS * attempt + 1))
        assert all(math.isfinite(loss) for loss in found.losses.values())
        assert waited.read_text(), "no read met the pause"
        waited.unlink()
