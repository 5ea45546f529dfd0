"""Latents that are made while training: the same as those made before, kept or not as the job says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from oarlock_trainer.data.shards import INDEX
from oarlock_trainer.plan.encoding import VAE_BATCH

if TYPE_CHECKING:
    from pathlib import Path

    from preprocess_runs import Preprocess


@pytest.mark.deep
def test_on_demand_encodes_when_asked_stores_it_and_finds_it_in_the_next_attempt(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    training = preprocess.training(imageEmbeds={"mode": "OnDemand"})
    shapes = undisturbed[1]["facts"]["latents"]
    rows = [row for row, shape in enumerate(shapes) if shape == shapes[0]][:5]
    (answer,) = preprocess(tmp_path, training, live=rows)
    assert answer["code"] == 0, answer["said"]
    assert answer["facts"]["latents"] == [None] * preprocess.count
    first, second = answer["facts"]["live"]
    assert first == second
    assert [shape for shape, _ in first] == [shapes[row] for row in rows]
    (index,) = (tmp_path / "embeds" / "latents").glob("*.npy")
    assert len(np.load(index)) == len(rows)
    (answer,) = preprocess(tmp_path, training, attempt=2)
    stored = [row for row, shape in enumerate(answer["facts"]["latents"]) if shape is not None]
    assert stored == rows


def test_on_the_fly_encodes_when_asked_and_stores_nothing(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    (answer,) = preprocess(tmp_path, preprocess.training(imageEmbeds={"mode": "OnTheFly"}), live=[0, 3])
    assert answer["code"] == 0, answer["said"]
    first, second = answer["facts"]["live"]
    assert first == second
    assert first[0][0] == undisturbed[1]["facts"]["latents"][0]
    assert [path.name for path in tmp_path.rglob("embeds/latents/*")] == ["scans"], "what the pictures are, no latents"


def test_latents_are_the_same_whether_made_before_or_while_training(
    preprocess: Preprocess, undisturbed: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Of the same call of the VAE: the first one before training. Beside other pictures it rounds differently."""
    shapes = undisturbed[1]["facts"]["latents"]
    call = [row for row, shape in enumerate(shapes) if shape == shapes[0]][:VAE_BATCH]
    preprocess(tmp_path, preprocess.training(imageEmbeds={"mode": "OnDemand"}), live=call)
    live, before = _stored(tmp_path), _stored(undisturbed[0])
    assert len(live) == VAE_BATCH
    assert live == {key: before[key] for key in live}


def _stored(output: Path) -> dict[bytes, bytes]:
    """All latents of an output as they are stored, by their keys."""
    found = {}
    for index in (output / "embeds" / "latents").glob("*.npy"):
        entries, content = np.load(index), index.with_suffix(".bin").read_bytes()
        assert entries.dtype == INDEX
        for entry in entries:
            start, end = int(entry["offset"]), int(entry["offset"] + entry["length"])
            found[entry["key"].tobytes()] = content[start:end]
    return found
