"""Tokenizers for tiny models, in the manner of those that text encoders come with: trained here, on a few sentences."""

from __future__ import annotations

import io
import random
import re
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SENTENCES = (
    "a photograph of a small boat on a quiet lake in the morning",
    "two cats asleep on a red chair beside the window",
    "the surface of the moon with craters and long shadows",
    "a cup of coffee and a newspaper on a wooden table",
    "an astronaut in a white suit smiles at the camera",
    "bricks, grass and gravel seen from close by",
    "a rocket rises from its pad in a cloud of smoke",
    "people walk through a street after the rain, lights reflected in the water",
)
_QWEN_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
_QWEN_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""Says what Qwen3's own says of a user's message."""
_MISTRAL_MARKS = ("<pad>", "<s>", "</s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[INST]", "[/INST]")
_MISTRAL_CHAT = (
    "{{ bos_token }}{% for message in messages %}{% set mark = 'SYSTEM_PROMPT' if message.role == 'system' else 'INST' %}"
    "[{{ mark }}]{% for part in message.content %}{{ part.text }}{% endfor %}[/{{ mark }}]{% endfor %}"
)
"""Says what Mistral Small's own says of a system's and a user's message."""


def write_clip_tokenizer(directory: Path) -> int:
    """Byte-pair tokenizer in CLIP's manner; returns the size of its vocabulary.

    The pieces are counted here, not by a trainer: CLIP's marks the end of a word with </w>, and ties must not depend on
    a hash seed.
    """
    from transformers import CLIPTokenizer  # noqa: PLC0415

    words = [[*word[:-1], word[-1] + "</w>"] for line in _SENTENCES for word in _letters(line).split()]
    letters = sorted({letter for letter in map(chr, range(33, 127)) if not letter.isupper()})
    vocabulary = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    merges: list[tuple[str, str]] = []
    for _ in range(120):
        pairs: dict[tuple[str, str], int] = {}
        for word in words:
            for pair in pairwise(word):
                pairs[pair] = pairs.get(pair, 0) + 1
        best = max(sorted(pairs), key=lambda pair: pairs[pair])
        merges.append(best)
        vocabulary.append("".join(best))
        words = [_merged(word, best) for word in words]
    tokenizer = CLIPTokenizer(
        vocab={piece: number for number, piece in enumerate(dict.fromkeys(vocabulary))},
        merges=merges,
        model_max_length=77,
    )
    tokenizer.save_pretrained(directory)
    return len(tokenizer)


def _merged(word: list[str], pair: tuple[str, str]) -> list[str]:
    result: list[str] = []
    for piece in word:
        if result and (result[-1], piece) == pair:
            result[-1] += piece
        else:
            result.append(piece)
    return result


def _letters(line: str) -> str:
    return "".join(letter if letter.isalnum() else f" {letter} " for letter in line.lower())


def write_t5_tokenizer(directory: Path, *, tokens: int) -> int:
    """SentencePiece tokenizer in T5's manner for texts of so many `tokens`; returns the size of its vocabulary."""
    import sentencepiece  # noqa: PLC0415
    from transformers import T5TokenizerFast  # noqa: PLC0415

    source = random.Random(0)  # noqa: S311 - shuffles words, guards nothing
    words = " ".join(_SENTENCES).split()
    lines = [*_SENTENCES, *(" ".join(source.sample(words, 8)) for _ in range(64))]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=160, model_type="unigram", num_threads=1,
        hard_vocab_limit=False, pad_id=0, eos_id=1, unk_id=2, bos_id=-1, minloglevel=2,
    )  # fmt: skip
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    vocabulary = [(processor.id_to_piece(i), processor.get_score(i)) for i in range(processor.get_piece_size())]
    tokenizer = T5TokenizerFast(vocab=vocabulary, extra_ids=0, model_max_length=tokens)
    tokenizer.save_pretrained(directory)
    (directory / "spiece.model").write_bytes(model.getvalue())
    return len(tokenizer)


def write_qwen_tokenizer(directory: Path, *, tokens: int, known: str = "", marks: Sequence[str] = ()) -> int:
    """Byte-pair tokenizer in Qwen's manner for texts of so many `tokens`, and a chat template; returns the vocabulary's size.

    `known` is a text whose words are a token each, too, and so are `marks`, in their order behind its own.
    """
    from transformers import Qwen2Tokenizer  # noqa: PLC0415

    all_marks = (*_QWEN_MARKS, *marks)
    vocabulary, merges = _byte_pairs(all_marks, known)
    tokenizer = Qwen2Tokenizer(
        vocab=vocabulary,
        merges=merges,
        model_max_length=tokens,
        eos_token="<|im_end|>",  # noqa: S106 - no password
        additional_special_tokens=list(all_marks[1:]),
    )
    tokenizer.chat_template = _QWEN_CHAT
    tokenizer.save_pretrained(directory)
    return len(tokenizer)


def write_mistral_tokenizer(directory: Path, *, tokens: int, known: str = "") -> int:
    """The same in Mistral's manner: it pads in front, and its messages are made of parts."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415
    from transformers import PreTrainedTokenizerFast  # noqa: PLC0415

    vocabulary, merges = _byte_pairs(_MISTRAL_MARKS, known)
    network = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    network.pre_tokenizer, network.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=network,
        model_max_length=tokens,
        padding_side="left",
        pad_token="<pad>",  # noqa: S106 - no password
        bos_token="<s>",  # noqa: S106
        eos_token="</s>",  # noqa: S106
        additional_special_tokens=list(_MISTRAL_MARKS[3:]),
    )
    tokenizer.chat_template = _MISTRAL_CHAT
    tokenizer.save_pretrained(directory)
    return len(tokenizer)


def _byte_pairs(marks: Sequence[str], known: str) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a byte-level tokenizer.

    A known word is put together letter by letter from its beginning, so that each has one way to be cut. So are a few signs
    that published tokenizers keep together.
    """
    from tokenizers.pre_tokenizers import ByteLevel  # noqa: PLC0415

    space = "\u0120"  # how byte-level tokenizers write it
    merges: dict[tuple[str, str], None] = {}
    more = re.findall(r" ?[A-Za-z]+|'s| \(|\),", re.sub(r"<\|\w+\|>", "", known))
    words = [f" {word}" for word in _letters(" ".join(_SENTENCES)).split()]
    for word in (*words, *sorted(more, key=lambda word: word.strip() == word)):  # what begins with a space comes first
        whole = word.replace(" ", space)
        merges |= {(whole[:end], whole[end]): None for end in range(1, len(whole))}
    pieces = [*marks, *sorted(ByteLevel.alphabet()), *("".join(pair) for pair in merges)]
    return {piece: number for number, piece in enumerate(pieces)}, list(merges)
