"""Videos on their way to latents: which frames are taken, how they are cut, and what is encoded of them."""

from __future__ import annotations

from concurrent.futures import CancelledError
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
import torch
from videos import number_of, write_video

from oarlock_api.data import Compression
from oarlock_api.training import Training
from oarlock_api.videos import Video
from oarlock_local import patience
from oarlock_trainer.data.buckets import Cut, Size
from oarlock_trainer.data.metadata.table import Picture
from oarlock_trainer.data.progress import Progress
from oarlock_trainer.data.shards import published, read_index, read_record
from oarlock_trainer.models.encoders import PictureEncoder
from oarlock_trainer.models.families import family_of
from oarlock_trainer.models.family_codes import code_of
from oarlock_trainer.preprocess import latents
from oarlock_trainer.preprocess.latents import Task, encode_pictures
from oarlock_trainer.preprocess.shapes import OtherSizeError
from oarlock_trainer.preprocess.storing import Storing
from oarlock_trainer.preprocess.videos import decode_video
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oarlock_trainer.data.quarantine import Rejected

CUT = Cut(scaled=Size(64, 48), left=0, top=0, target=Size(64, 48))
VIDEO = Video()
GO_ON = Event()


def nothing() -> None:
    """Go on."""


def clip(name: str, frames: int = 17, *, key: int = 1, size: Size = CUT.scaled) -> Picture:
    return Picture(
        dataset="clips", name=name, width=size.width, height=size.height, target_width=CUT.target.width,
        target_height=CUT.target.height, captions=("a",), image_key=bytes([key]) * 16, text_keys=(b"t" * 16,),
        frames=frames,
    )  # fmt: skip


def source(folder: Path) -> LocalFiles:
    return LocalFiles(folder, field="source")


def numbers(pixels: np.ndarray) -> list[int]:
    return [number_of(float(frame.mean())) for frame in pixels]


@pytest.mark.parametrize(
    ("rate", "fps", "taken"),
    [
        (16.0, 16.0, [0, 1, 2, 3, 4]),
        (24.0, 16.0, [0, 2, 3, 5, 6]),
        (8.0, 16.0, [0, 1, 1, 2, 2]),
        (8.0, 4.0, [0, 2, 4, 6, 8]),
    ],
)
def test_frames_are_the_nearest_of_each_moment(tmp_path: Path, rate: float, fps: float, taken: Sequence[int]) -> None:
    write_video(tmp_path / "a.avi", rate=rate)
    pixels = decode_video(source(tmp_path), clip("a.avi", 5), CUT, replace_fps(fps), GO_ON)
    assert pixels.shape == (5, 48, 64, 3)
    assert numbers(pixels) == list(taken)


def replace_fps(fps: float) -> Video:
    return VIDEO.model_copy(update={"fps": fps})


def test_each_frame_is_scaled_and_cut_as_a_picture_and_red_is_red(tmp_path: Path) -> None:
    drawn = np.zeros((17, 96, 160, 3), np.uint8)
    drawn[:, :, 80:] = (200, 60, 20)
    write_video(tmp_path / "a.avi", size=(160, 96), drawn=drawn)
    cut = Cut(scaled=Size(80, 48), left=16, top=0, target=Size(64, 48))
    picture = clip("a.avi", size=Size(160, 96))
    pixels = decode_video(source(tmp_path), picture, cut, VIDEO, GO_ON).astype(int)
    assert np.abs(pixels[:, :, 30:] - (200, 60, 20)).max() < 20
    assert pixels[:, :, :20].max() < 20
    mirrored = decode_video(source(tmp_path), replace(picture, mirrored=True), cut, VIDEO, GO_ON)
    assert (mirrored == pixels[:, :, ::-1]).all()


def test_a_video_of_another_size_than_the_table_says_is_not_stretched(tmp_path: Path) -> None:
    write_video(tmp_path / "a.webm", size=(64, 64))
    with pytest.raises(OtherSizeError, match="64 x 64 as it is shown, there 64 x 48"):
        decode_video(source(tmp_path), clip("a.webm"), CUT, VIDEO, GO_ON)


def test_a_stop_breaks_off_a_video_that_is_being_decoded(tmp_path: Path) -> None:
    write_video(tmp_path / "a.webm")
    stopped = Event()
    stopped.set()
    with pytest.raises(CancelledError):
        decode_video(source(tmp_path), clip("a.webm"), CUT, VIDEO, stopped)


def test_a_job_that_stops_waits_for_no_video(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def decoding(*arguments: Any) -> np.ndarray:
        assert arguments[-1].wait(patience.SECONDS), "nobody stopped it"
        raise CancelledError

    def stopping() -> None:
        raise InterruptedError

    monkeypatch.setattr(latents, "decode_video", decoding)
    with pytest.raises(InterruptedError):
        made(source(tmp_path), [clip("a.webm")], go_on=stopping)


def test_frames_that_a_decoder_holds_count_as_what_is_decoded(tmp_path: Path) -> None:
    files = source(tmp_path)

    def weight(size: Size, video: Video | None) -> int:
        one = Task(row=0, picture=clip("a.webm", size=size), source=files, cut=CUT, unit=0, store=files, video=video)
        return one.pixel_bytes

    assert weight(Size(64, 48), None) == weight(Size(3840, 2160), None) == 17 * 64 * 48 * 3
    assert weight(Size(3840, 2160), VIDEO) == (17 * 64 * 48 + 8 * 3840 * 2160) * 3


def made(
    files: LocalFiles,
    clips: Sequence[Picture],
    encoder: PictureEncoder | None = None,
    store: LocalFiles | None = None,
    *,
    go_on: Callable[[], None] = nothing,
) -> list[Rejected]:
    """What becomes of clips; without an encoder none may reach it."""
    tasks = [
        Task(row=row, picture=one, source=files, cut=CUT, unit=0, store=store or files, video=VIDEO)
        for row, one in enumerate(clips)
    ]
    found = encode_pictures(
        tasks,
        encoder or cast("PictureEncoder", None),
        Storing(Compression.NONE, threads=1, go_on=nothing),
        batch_size=4,
        threads=2,
        progress=Progress("latents", own=len(clips), total=len(clips), speaks=False),
        go_on=go_on,
    )
    return [one for _, one in found]


def test_videos_that_are_damaged_or_end_early_are_rejected_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "torn.webm").write_bytes(b"no video")
    write_video(tmp_path / "short.webm", frames=10)
    torn, short = made(source(tmp_path), [clip("torn.webm"), clip("short.webm")])
    assert (torn.kind, torn.reason) == ("unreadable", "unreadable: it is no video, or a damaged one")
    assert (short.kind, short.reason) == ("unreadable", "unreadable: it ends after 10 frames; its sample needs 17")


@pytest.fixture
def encoder(tiny_wan: Path) -> PictureEncoder:
    job = Training.model_validate(
        {
            "model": {"family": "Wan", "path": str(tiny_wan)}, "steps": 1,
            "data": {"datasets": [{"name": "clips", "source": {"path": "/clips"}, "video": {}}]},
        }
    )  # fmt: skip
    return PictureEncoder(tiny_wan, family_of(job.model), torch.device("cpu"), code=code_of(job.model))


def test_a_videos_latents_are_its_frames_behind_each_other_in_one_tensor(encoder: PictureEncoder) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (1, 17, 48, 64, 3), dtype=np.uint8)
    whole = encoder.encode(pixels, None)
    channels = whole.shape[1] // 5
    assert whole.shape == (1, channels * 5, 6, 8)
    first = encoder.encode(pixels[:, 0], None)
    assert first.shape == (1, channels, 6, 8)
    assert torch.allclose(whole.unflatten(1, (channels, 5))[:, :, 0].float(), first.float(), atol=2e-2), (
        "of frame 0 alone"
    )


def test_a_videos_latents_are_stored_whatever_stands_beside_it_in_its_unit(
    encoder: PictureEncoder, tmp_path: Path
) -> None:
    """A video is encoded by itself, so that one of many takes no more memory, and rounds as it would alone."""
    for name in ("a.webm", "b.webm"):
        write_video(tmp_path / "clips" / name, frames=17)
    calls: list[tuple[int, ...]] = []
    plain = encoder.encode

    def watched(pictures: np.ndarray, seeds: Any) -> torch.Tensor:
        calls.append(pictures.shape)
        return plain(pictures, seeds)

    encoder.encode = watched  # type: ignore[method-assign]
    store = LocalFiles(tmp_path / "embeds", field="embeds")
    clips = [clip("a.webm", key=1), clip("b.webm", key=2)]
    assert made(LocalFiles(tmp_path / "clips", field="source"), clips, encoder, store) == []
    assert calls == [(1, 17, 48, 64, 3)] * 2
    (shard,) = published(store.list())
    index = read_index(store, shard)
    assert index is not None
    assert len(index) == 2
    values, (channels, height, width) = read_record(store, shard.name, index[0])
    assert (channels % 5, height, width) == (0, 6, 8)
    assert len(values) == channels * height * width


def test_what_is_decoded_ahead_is_bounded_by_its_bytes(
    encoder: PictureEncoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_video(tmp_path / "a.webm", frames=17)
    monkeypatch.setattr(latents, "_AHEAD_BYTES", 2 * (17 + latents._SOURCE_FRAMES) * 48 * 64 * 3)
    begun, ended, most = 0, 0, 0
    plain = latents.decode_video

    def decoding(*arguments: Any) -> np.ndarray:
        nonlocal begun, most
        begun += 1
        most = max(most, begun - ended)
        return plain(*arguments)

    def encoding(pictures: np.ndarray, seeds: Any) -> torch.Tensor:
        nonlocal ended
        del pictures, seeds
        ended += 1
        return torch.zeros(1, 4, 6, 8, dtype=torch.bfloat16)

    monkeypatch.setattr(latents, "decode_video", decoding)
    encoder.encode = encoding  # type: ignore[method-assign]
    store = LocalFiles(tmp_path / "embeds", field="embeds")
    assert made(source(tmp_path), [clip("a.webm", key=number) for number in range(8)], encoder, store) == []
    assert (begun, ended) == (8, 8)
    assert most <= 3, "two, and the one that is encoded"
