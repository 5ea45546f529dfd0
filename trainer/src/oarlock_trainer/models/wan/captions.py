"""The text encoder of Wan: captions -> what UMT5 makes of them.

As diffusers' WanPipeline does it: padded to their full length, the padding is masked in UMT5, and what stands for it are
zeros, which the transformer sees. Captions are cleaned first as the pipeline cleans them where the package ftfy is not
installed: with it, broken characters would be mended, too, and one file would have two texts.
"""

from __future__ import annotations

from html import unescape
from typing import TYPE_CHECKING

import torch

from oarlock_trainer.models.encoders import load_frozen, stream
from oarlock_trainer.models.folder import loading
from oarlock_trainer.models.wan.flavors import FLAVORS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import ModelFlavor


class CaptionEncoder:
    """UMT5 with its tokenizer."""

    def __init__(self, model: Path, flavor: ModelFlavor, device: torch.device, *, streamed: bool = False) -> None:
        """bfloat16 on a GPU, float32 on the CPU.

        With `streamed` the weights stay in the node's memory, and each layer's come to the device while it works.
        """
        from transformers import T5TokenizerFast, UMT5EncoderModel  # noqa: PLC0415
        from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        disable_progress_bar()  # a bar per rank and encoder makes a log unreadable
        self._device = device
        self._encoder = load_frozen(
            UMT5EncoderModel, model / "text_encoder", "cpu" if streamed else device, dtype=dtype
        )
        if streamed:
            stream(self._encoder, device)
        with loading(model / "tokenizer"):
            self._tokenizer = T5TokenizerFast.from_pretrained(model / "tokenizer", local_files_only=True)
        self.tokens: int = min(FLAVORS[flavor].text_tokens, self._tokenizer.model_max_length)
        """Of a text, padding included."""

    @torch.no_grad()
    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
        """Captions -> texts (B, T, t) and vectors of no width (B, 0), bfloat16 on the CPU, and how many of T are no padding.

        The host waits for the GPU with the tokens, with the result and, streamed, with each layer's weights: for the
        caller's stream alone. The lengths are the tokenizer's own, on the CPU.
        """
        given = self._tokenizer(
            [cleaned(caption) for caption in captions],
            padding="max_length",
            max_length=self.tokens,
            truncation=True,
            return_tensors="pt",
        )
        mask = given.attention_mask.to(self._device)
        states = self._encoder(given.input_ids.to(self._device), attention_mask=mask).last_hidden_state
        texts = (states * mask[..., None].to(states)).to(torch.bfloat16).cpu()
        lengths = [int(length) for length in given.attention_mask.sum(dim=1)]
        return texts, texts.new_zeros(len(texts), 0), lengths


def cleaned(caption: str) -> str:
    """Marks of HTML become characters, also where they were escaped twice, and runs of white space one space."""
    return " ".join(unescape(unescape(caption)).split())
