"""The text encoder of Z-Image: captions -> what Qwen3's last layer but one makes of them, as the user's turn of a chat.

Exactly as diffusers' ZImagePipeline feeds it: padded to its full length, which is masked. What stands for padding is cut
off by whoever keeps a text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from oarlock_trainer.models.encoders import load_frozen, stream
from oarlock_trainer.models.folder import loading
from oarlock_trainer.models.zimage.flavors import FLAVORS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import ModelFlavor


class CaptionEncoder:
    """Qwen3 with its tokenizer."""

    def __init__(self, model: Path, flavor: ModelFlavor, device: torch.device, *, streamed: bool = False) -> None:
        """bfloat16 on a GPU, float32 on the CPU.

        With `streamed` the weights stay in the node's memory, and each layer's come to the device while it works.
        """
        from transformers import Qwen2Tokenizer, Qwen3Model  # noqa: PLC0415
        from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        disable_progress_bar()  # a bar per rank and encoder makes a log unreadable
        self._device = device
        self._encoder = load_frozen(Qwen3Model, model / "text_encoder", "cpu" if streamed else device, dtype=dtype)
        if streamed:
            stream(self._encoder, device)
        with loading(model / "tokenizer"):
            self._tokenizer = Qwen2Tokenizer.from_pretrained(model / "tokenizer", local_files_only=True)
        self.tokens: int = min(FLAVORS[flavor].text_tokens, self._tokenizer.model_max_length)
        """Of a text, padding included."""

    @torch.no_grad()
    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
        """Captions -> texts (B, T, t) and vectors of no width (B, 0), bfloat16 on the CPU, and how many of T are no padding.

        The host waits for the GPU with the tokens, with the result and, streamed, with each layer's weights: for the
        caller's stream alone. The lengths are the tokenizer's own, on the CPU.
        """
        turns = [
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": caption}], tokenize=False, add_generation_prompt=True, enable_thinking=True
            )
            for caption in captions
        ]
        given = self._tokenizer(
            turns,
            padding="max_length",
            padding_side="right",
            max_length=self.tokens,
            truncation=True,
            return_tensors="pt",
        )
        states = self._encoder(
            given.input_ids.to(self._device),
            attention_mask=given.attention_mask.to(self._device),
            output_hidden_states=True,
            use_cache=False,
        ).hidden_states[-2]
        lengths = [int(length) for length in given.attention_mask.sum(dim=1)]
        return states.to(torch.bfloat16).cpu(), torch.empty(len(turns), 0, dtype=torch.bfloat16), lengths
