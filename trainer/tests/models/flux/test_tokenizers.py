"""Captions are cut as FLUX.1's own tokenizers would cut them: 49,408 pieces of CLIP, 32,100 of T5, 77 and 512 tokens."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import full_vocabularies
import pytest
import torch

from oarlock_api.weights import ModelFlavor
from oarlock_trainer.models.flux.captions import CaptionEncoder

if TYPE_CHECKING:
    from pathlib import Path

CAPTIONS = (
    "",
    "Zoo tree, zest",
    "\uff22\uff2f\uff21\uff34 caf\u00e9 \u65e5\u672c \U0001f680\n<extra_id_0>",
    "a zoo of every zest " * 400,
)
TOKENS, SHORT = 512, 77


class Watched:
    """An encoder, and the ids that it was asked with."""

    def __init__(self, encoder: Any) -> None:
        self.encoder = encoder
        self.ids = torch.empty(0)

    def __call__(self, ids: torch.Tensor) -> Any:
        self.ids = ids
        self.made = self.encoder(ids)
        return self.made


@pytest.fixture(scope="module")
def model(tiny_flux: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("full") / "model"
    full_vocabularies.write(tiny_flux, folder)
    return folder


@pytest.fixture(scope="module")
def encoded(model: Path) -> dict[str, Any]:
    """What both encoders were asked with, and what comes out."""
    encoder = CaptionEncoder(model, ModelFlavor.DEV, torch.device("cpu"))
    clip, t5 = Watched(encoder._clip), Watched(encoder._t5)
    encoder._clip, encoder._t5 = clip, t5
    sequence, pooled, lengths = encoder.encode(CAPTIONS)
    return {"clip": clip, "t5": t5, "sequence": sequence, "pooled": pooled, "lengths": lengths}


def test_clip_gets_77_ids_up_to_49407_from_start_to_end_padded_with_the_end(
    encoded: dict[str, Any], model: Path
) -> None:
    ids = encoded["clip"].ids
    assert ids.shape == (len(CAPTIONS), SHORT)
    assert ids.dtype == torch.int64
    vocabulary = json.loads((model / "tokenizer" / "vocab.json").read_text(encoding="utf-8"))
    pieces = {number: piece for piece, number in vocabulary.items()}
    for row, text in zip(ids.tolist(), ("", "zootree,zest", None, "azooofeveryzest" * 400), strict=True):
        start, *rest = row
        assert (start, rest[-1]) == (full_vocabularies.CLIP_START, full_vocabularies.CLIP_END)
        words = rest[: rest.index(full_vocabularies.CLIP_END)]
        assert set(rest[len(words) :]) == {full_vocabularies.CLIP_END}
        spelt = "".join(pieces[number] for number in words).replace("</w>", "")
        assert text is None or spelt == text[: len(spelt)]
        assert text is None or spelt == text or len(words) == SHORT - 2
    # More than 16 bits with a sign hold, and none of them means "unknown".
    assert ids[1:, 1:][ids[1:, 1:] < full_vocabularies.CLIP_START].max() > 2**15


def test_t5_gets_512_ids_with_an_end_also_where_the_caption_is_cut_and_padding_is_told_apart(
    encoded: dict[str, Any], model: Path
) -> None:
    ids, lengths = encoded["t5"].ids, encoded["lengths"]
    assert ids.shape == (len(CAPTIONS), TOKENS)
    described = json.loads((model / "tokenizer_2" / "tokenizer.json").read_text(encoding="utf-8"))
    pieces = [piece for piece, _ in described["model"]["vocab"]]
    for row, length in zip(ids.tolist(), lengths, strict=True):
        assert row.index(1) == length - 1
        assert row[length:] == [0] * (TOKENS - length)
        assert 0 not in row[:length]
    assert lengths[0] == 1
    assert lengths[-1] == TOKENS
    spelt = ["".join(pieces[number] for number in row[: length - 1]) for row, length in zip(ids, lengths, strict=True)]
    assert spelt[1] == "\u2581Zoo\u2581tree,\u2581zest"
    assert ("\u2581a\u2581zoo\u2581of\u2581every\u2581zest" * 400).startswith(spelt[-1])
    # NFKC, as SentencePiece was trained with: wide letters are letters. The extra ids are the last pieces.
    assert spelt[2].startswith("\u2581BOAT\u2581")
    assert int(ids[2].max()) == full_vocabularies.T5_PIECES - 1


def test_the_vector_of_a_caption_is_clips_at_the_first_end_of_its_text(encoded: dict[str, Any]) -> None:
    """FLUX.1's configuration names 2 as the end, which transformers takes for the largest id: padding has the same one."""
    clip = encoded["clip"]
    for number, row in enumerate(clip.ids.tolist()):
        at_end = clip.made.last_hidden_state[number, row.index(full_vocabularies.CLIP_END)]
        assert torch.equal(encoded["pooled"][number], at_end.to(torch.bfloat16))


def test_a_caption_is_encoded_the_same_whatever_stands_beside_it(encoded: dict[str, Any], model: Path) -> None:
    encoder = CaptionEncoder(model, ModelFlavor.DEV, torch.device("cpu"))
    for number, caption in enumerate(CAPTIONS):
        sequence, pooled, lengths = encoder.encode([caption])
        assert lengths == [encoded["lengths"][number]]
        torch.testing.assert_close(sequence[0], encoded["sequence"][number])
        torch.testing.assert_close(pooled[0], encoded["pooled"][number])
