"""The text encoders of Stable Diffusion 3.5: captions -> one sequence of CLIP's and T5's tokens, and a vector of both CLIPs.

Exactly as diffusers' StableDiffusion3Pipeline feeds them: the last layer but one of both CLIPs side by side, filled up with
zeros to T5's width, then T5's sequence at its full length, *not* masked, so that padding carries values of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional

from oarlock_trainer.models.encoders import load_frozen, stream
from oarlock_trainer.models.folder import loading
from oarlock_trainer.models.sd3.flavors import FLAVORS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import ModelFlavor


class CaptionEncoder:
    """T5 and both CLIPs with their tokenizers."""

    def __init__(self, model: Path, flavor: ModelFlavor, device: torch.device, *, streamed: bool = False) -> None:
        """bfloat16 on a GPU, float32 on the CPU.

        With `streamed` T5's weights stay in the node's memory, and each layer's come to the device while it works.
        """
        from transformers import (  # noqa: PLC0415
            CLIPTextModelWithProjection,
            CLIPTokenizer,
            T5EncoderModel,
            T5TokenizerFast,
        )
        from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

        def tokenizer(kind: Any, name: str) -> Any:
            with loading(model / name):
                return kind.from_pretrained(model / name, local_files_only=True)

        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        disable_progress_bar()  # a bar per rank and encoder makes a log unreadable
        self._device = device
        self._clips = [
            load_frozen(CLIPTextModelWithProjection, model / name, device, dtype=dtype)
            for name in ("text_encoder", "text_encoder_2")
        ]
        self._t5 = load_frozen(T5EncoderModel, model / "text_encoder_3", "cpu" if streamed else device, dtype=dtype)
        if streamed:
            stream(self._t5, device)
        self._clip_tokenizers = [tokenizer(CLIPTokenizer, name) for name in ("tokenizer", "tokenizer_2")]
        self._t5_tokenizer = tokenizer(T5TokenizerFast, "tokenizer_3")
        self._short = self._clip_tokenizers[0].model_max_length
        self._long = min(FLAVORS[flavor].text_tokens, self._t5_tokenizer.model_max_length)
        self.tokens: int = self._short + self._long
        """Of a sequence, padding included."""

    @torch.no_grad()
    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
        """Captions -> sequence (B, T, t) and vector (B, p), both bfloat16 on the CPU, and how many of T are no padding.

        CLIP's tokens all count as no padding: T5's come behind them. The host waits for the GPU with each network's tokens,
        with both results and, streamed, with each layer's weights: for the caller's stream alone.
        """
        states, vectors = [], []
        for network, tokenizer in zip(self._clips, self._clip_tokenizers, strict=True):
            made = network(self._ids(tokenizer, captions, self._short).input_ids, output_hidden_states=True)
            states.append(made.hidden_states[-2])
            vectors.append(made.text_embeds)
        tokens = self._ids(self._t5_tokenizer, captions, self._long)
        sequence = self._t5(tokens.input_ids).last_hidden_state
        both = torch.cat(states, dim=-1)
        whole = torch.cat([functional.pad(both, (0, sequence.shape[-1] - both.shape[-1])), sequence], dim=1)
        lengths = [self._short + int(length) for length in tokens.attention_mask.sum(dim=1)]
        return whole.to(torch.bfloat16).cpu(), torch.cat(vectors, dim=-1).to(torch.bfloat16).cpu(), lengths

    def _ids(self, tokenizer: Any, captions: Sequence[str], length: int) -> Any:
        made = tokenizer(list(captions), padding="max_length", max_length=length, truncation=True, return_tensors="pt")
        made["input_ids"] = made.input_ids.to(self._device)  # the mask is read on the CPU
        return made
