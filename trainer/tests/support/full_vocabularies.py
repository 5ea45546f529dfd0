"""Tokenizers with vocabularies of the size and form of FLUX.1's, over text encoders that are as narrow as the tiny model's.

Files lie as in FLUX.1-dev: CLIP's as vocab.json and merges.txt, T5's as tokenizer.json. The pieces are counted up, not
learnt: where a caption is cut means nothing.
"""

from __future__ import annotations

import base64
import json
import shutil
from itertools import islice, product
from string import ascii_lowercase, printable
from typing import TYPE_CHECKING, Any

from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers.pre_tokenizers import ByteLevel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLIP_START, CLIP_END, CLIP_PIECES = 49406, 49407, 49408
T5_EXTRA_IDS, T5_PIECES, T5_ROWS = 100, 32100, 32128
"""Pieces, of which the last 100 are for no text, and rows of the embedding, which is larger."""


def write(tiny: Path, folder: Path) -> None:
    """Write a model as the tiny one, with these tokenizers."""
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel  # noqa: PLC0415

    shutil.copytree(tiny, folder, ignore=shutil.ignore_patterns("tokenizer*", "text_encoder*"))
    _write_clip(folder / "tokenizer")
    _write_t5(folder / "tokenizer_2", tiny / "tokenizer_2" / "spiece.model")
    # FLUX.1's CLIP says 2 for the end of text, which stands for "the largest id".
    clip = CLIPTextConfig.from_pretrained(tiny / "text_encoder", vocab_size=CLIP_PIECES, eos_token_id=2, bos_token_id=0)
    CLIPTextModel(clip).save_pretrained(folder / "text_encoder")
    t5 = T5Config.from_pretrained(tiny / "text_encoder_2", vocab_size=T5_ROWS)
    T5EncoderModel(t5).save_pretrained(folder / "text_encoder_2")


def _write_clip(folder: Path) -> None:
    letters = sorted(ByteLevel.alphabet())
    pieces = [*letters, *(f"{letter}</w>" for letter in letters)]
    merges = list(islice(_merges(), CLIP_START - len(pieces)))
    pieces += [*("".join(pair) for pair in merges), "<|startoftext|>", "<|endoftext|>"]
    _write(folder / "vocab.json", {piece: number for number, piece in enumerate(pieces)})
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    special = {
        "bos_token": pieces[CLIP_START],
        **dict.fromkeys(("eos_token", "pad_token", "unk_token"), pieces[CLIP_END]),
    }
    added = {str(number): _special(pieces[number]) for number in (CLIP_START, CLIP_END)}
    settings = {"add_prefix_space": False, "do_lower_case": True, "model_max_length": 77, "errors": "replace"}
    _write(
        folder / "tokenizer_config.json",
        settings | special | {"added_tokens_decoder": added, "tokenizer_class": "CLIPTokenizer"},
    )


def _merges() -> Iterator[tuple[str, str]]:
    """All pieces of two and three letters, in and at the end of words, then longer ones."""
    for length, end in product((2, 3, 4), ("", "</w>")):
        if (length, end) != (4, ""):
            yield from (("".join(word[:-1]), word[-1] + end) for word in product(ascii_lowercase, repeat=length))


def _write_t5(folder: Path, sentences: Path) -> None:
    """`sentences` is a model of SentencePiece, whose rules for Unicode are taken over: T5's has the same."""
    words = (
        mark + "".join(word) for mark in ("\u2581", "") for n in (2, 3) for word in product(ascii_lowercase, repeat=n)
    )
    text = [*("<pad>", "</s>", "<unk>", "\u2581"), *(letter for letter in printable if not letter.isspace()), *words]
    text = text[: T5_PIECES - T5_EXTRA_IDS]
    pieces = [*text, *(f"<extra_id_{number}>" for number in reversed(range(T5_EXTRA_IDS)))]
    assert len(pieces) == T5_PIECES
    rules = ModelProto.FromString(sentences.read_bytes()).normalizer_spec.precompiled_charsmap
    special = {number: piece for number, piece in enumerate(pieces) if piece[0] == "<" and len(piece) > 1}
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    _write(
        folder / "tokenizer.json",
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [{"id": number, **_special(piece)} for number, piece in special.items()],
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(rules).decode()},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, space]},
            "post_processor": {
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}],
                "special_tokens": {"</s>": {"id": "</s>", "ids": [1], "tokens": ["</s>"]}},
            },
            "decoder": space,
            "model": {"type": "Unigram", "unk_id": 2, "vocab": [[piece, -1.0] for piece in pieces]},
        },
    )
    _write(
        folder / "tokenizer_config.json",
        {
            "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "extra_ids": T5_EXTRA_IDS, "legacy": True,
            "additional_special_tokens": [f"<extra_id_{number}>" for number in range(T5_EXTRA_IDS)],
            "added_tokens_decoder": {str(number): _special(piece) for number, piece in special.items()},
            "model_max_length": 512, "tokenizer_class": "T5Tokenizer",
        },
    )  # fmt: skip


def _special(piece: str) -> dict[str, Any]:
    switches = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"content": piece, "special": True, **switches}


def _write(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
