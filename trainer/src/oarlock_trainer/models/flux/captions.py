"""The text encoders of FLUX.1: captions -> T5 sequence and CLIP vector.

Exactly as diffusers' FluxPipeline feeds them: the T5 sequence is padded to its full length and *not* masked, so the
padding positions carry values of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oarlock_trainer.models.encoders import load_frozen, stream
from oarlock_trainer.models.flux.flavors import FLAVORS
from oarlock_trainer.models.folder import loading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import ModelFlavor


class CaptionEncoder:
    """T5 and CLIP with their tokenizers."""

    def __init__(self, model: Path, flavor: ModelFlavor, device: torch.device, *, streamed: bool = False) -> None:
        """bfloat16 on a GPU, float32 on the CPU.

        With `streamed` the weights stay in the node's memory, and each layer's come to the device while it works.
        """
        from transformers import CLIPTextModel, CLIPTokenizer, T5EncoderModel, T5TokenizerFast  # noqa: PLC0415
        from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        disable_progress_bar()  # a bar per rank and encoder makes a log unreadable
        self._device = device
        self._clip = load_frozen(CLIPTextModel, model / "text_encoder", device, dtype=dtype)
        self._t5 = load_frozen(T5EncoderModel, model / "text_encoder_2", "cpu" if streamed else device, dtype=dtype)
        if streamed:
            stream(self._t5, device)
        with loading(model / "tokenizer"):
            self._clip_tokenizer = CLIPTokenizer.from_pretrained(model / "tokenizer", local_files_only=True)
        with loading(model / "tokenizer_2"):
            self._t5_tokenizer = T5TokenizerFast.from_pretrained(model / "tokenizer_2", local_files_only=True)
        self.tokens: int = min(FLAVORS[flavor].text_tokens, self._t5_tokenizer.model_max_length)
        """Of a T5 sequence, padding included."""

    @torch.no_grad()
    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
        """Captions -> T5 sequence (B, T, t), CLIP vector (B, p), both bfloat16 on the CPU, and how many of T are no padding.

        The host waits for the GPU with each network's tokens, with both results and, streamed, with each layer's weights:
        for the caller's stream alone. The lengths are the tokenizer's own, on the CPU.
        """
        long = self._t5_tokenizer(
            list(captions), padding="max_length", max_length=self.tokens, truncation=True, return_tensors="pt"
        )
        short = self._clip_tokenizer(
            list(captions),
            padding="max_length",
            max_length=self._clip_tokenizer.model_max_length,
            truncation=True,
            return_tensors="pt",
        )
        sequence = self._t5(long.input_ids.to(self._device)).last_hidden_state
        pooled = self._clip(short.input_ids.to(self._device)).pooler_output
        lengths = [int(length) for length in long.attention_mask.sum(dim=1)]
        return sequence.to(torch.bfloat16).cpu(), pooled.to(torch.bfloat16).cpu(), lengths
