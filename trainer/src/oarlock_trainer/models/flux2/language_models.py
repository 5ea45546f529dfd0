"""The language models that FLUX.2's variants take their texts from: how each is asked, and which part of it answers.

Exactly as the pipelines do it: Klein's (Flux2KleinPipeline) is Qwen3, asked as by a user; Dev's (Flux2Pipeline) is Mistral
Small 3.2, behind a system's turn, without what sees pictures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from oarlock_api.weights import ModelFlavor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SYSTEM = (
    "You are an AI that reasons about image descriptions. You give structured responses focusing on object relationships, "
    "object\nattribution and actions without speculation."
)
"""Dev was trained with these words: they are no text of ours, and must not change."""
_PICTURE = "[IMG]"
"""What Mistral's tokenizer takes for a picture, and the pipeline takes out of captions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageModel:
    """One of them."""

    model: str
    """Its class in transformers, and so is the tokenizer's."""
    tokenizer: str
    layers: tuple[int, int, int]
    """Whose outputs are taken."""
    network: Callable[[Any], Any]
    """The stack of layers in a loaded model."""
    ask: Callable[[Any, Sequence[str], int], Any]
    """(tokenizer, captions, tokens) -> the tokenizer's answer, padded to so many tokens."""


def _ask_qwen(tokenizer: Any, captions: Sequence[str], tokens: int) -> Any:
    asked = [
        tokenizer.apply_chat_template(
            [{"role": "user", "content": caption}],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        for caption in captions
    ]
    return tokenizer(asked, padding="max_length", max_length=tokens, truncation=True, return_tensors="pt")


def _ask_mistral(tokenizer: Any, captions: Sequence[str], tokens: int) -> Any:
    asked = [[_said("system", SYSTEM), _said("user", caption.replace(_PICTURE, ""))] for caption in captions]
    return tokenizer.apply_chat_template(
        asked, add_generation_prompt=False, tokenize=True, return_dict=True, return_tensors="pt", padding="max_length",
        truncation=True, max_length=tokens,
    )  # fmt: skip


def _said(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "text", "text": text}]}


QWEN3 = LanguageModel(
    model="Qwen3ForCausalLM",
    tokenizer="Qwen2TokenizerFast",
    layers=(9, 18, 27),
    network=lambda whole: whole.model,
    ask=_ask_qwen,
)
MISTRAL = LanguageModel(
    model="Mistral3ForConditionalGeneration",
    tokenizer="PreTrainedTokenizerFast",
    layers=(10, 20, 30),
    network=lambda whole: whole.model.language_model,
    ask=_ask_mistral,
)
"""Its directory names a processor of texts and pictures, which needs torchvision: for texts the tokenizer does all of it."""


def language_model(flavor: ModelFlavor) -> LanguageModel:
    """That of a variant."""
    return MISTRAL if flavor == ModelFlavor.DEV else QWEN3
