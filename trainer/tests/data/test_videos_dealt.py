"""Videos in steps: as pictures, but for the tokens of all their frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dealing import EFFECTIVE, ROWS, bits, loader, prepared, training

if TYPE_CHECKING:
    from pathlib import Path

FRAMES, LATENTS = 17, 5


def sets(**clips: Any) -> dict[str, Any]:
    both = [
        {"name": "clips", "source": {"path": "/a"}, "video": {}} | clips,
        {"name": "photos", "source": {"path": "/b"}},
    ]
    return {"model": {"family": "Wan", "path": "/m"}, "data": {"datasets": both}, "batchSize": EFFECTIVE}


def test_steps_are_of_videos_or_of_pictures_and_count_the_tokens_of_all_frames(tmp_path: Path) -> None:
    data = prepared(tmp_path, ("clips", "photos"), frames=(FRAMES, 1))
    one = loader(data, training(**sets()))
    seen = set()
    for step in range(20):
        batch = one.step(step)
        (micro,) = batch.micro_batches
        rows = [int(bits(sample)[0]) for sample in micro.latents]
        frames = LATENTS if rows[0] < ROWS else 1
        assert {row < ROWS for row in rows} == {frames == LATENTS}
        channels, height, width = micro.latents.shape[1:]
        assert channels == 4 * frames
        assert micro.noise.shape == micro.latents.shape
        assert batch.tokens == frames * height * width // 4 + micro.text.shape[1]
        seen.add((channels, height, width))
    assert seen == {(20, 8, 8), (20, 6, 12), (4, 8, 8), (4, 6, 12)}


def test_videos_are_judged_as_pictures_are(tmp_path: Path) -> None:
    data = prepared(tmp_path, ("clips", "photos"), frames=(FRAMES, 1))
    one = loader(data, training(**sets(role="Evaluation")))
    judged = [(int(bits(sample)[0]), len(sample)) for _, batch in one.evaluation() for sample in batch.latents]
    assert sorted(judged) == [(row, 4 * LATENTS) for row in range(ROWS)]
