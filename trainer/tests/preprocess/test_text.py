"""What people hear of captions while they are encoded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oarlock_api.data import Compression
from oarlock_trainer.data.progress import Progress
from oarlock_trainer.preprocess.storing import Storing
from oarlock_trainer.preprocess.text import encode_captions
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pytest
    from torch import Tensor


class Words:
    """An encoder with a token for each word, and no more than four."""

    tokens = 4

    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
        """Zeros."""
        count = len(captions)
        lengths = [min(len(caption.split()), self.tokens) for caption in captions]
        return torch.zeros(count, self.tokens, 2), torch.zeros(count, 0), lengths


def encode(folder: Path, captions: Sequence[str]) -> None:
    def go_on() -> None:
        """Nobody asks for an end."""

    encode_captions(
        ((0, bytes([number]) * 16, caption) for number, caption in enumerate(captions)),
        Words(),
        Storing(Compression.NONE, threads=1, go_on=go_on),
        store=LocalFiles(folder, field="a test"),
        batch_size=2,
        unpadded=False,
        progress=Progress("texts", own=len(captions), total=len(captions), speaks=False),
        go_on=go_on,
    )


def test_captions_whose_end_the_model_does_not_see_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    encode(tmp_path, ["a boat", "a boat on the wide sea", "a cat", "a dog and a cat"])
    said = capsys.readouterr().err
    assert "2 of this rank's captions have 4 tokens or more" in said
    assert "'a boat on the wide sea'" in said


def test_captions_that_fit_are_not_spoken_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    encode(tmp_path, ["a boat", "a cat"])
    assert capsys.readouterr().err == ""
