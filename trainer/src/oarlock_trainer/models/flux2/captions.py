"""The text encoder of FLUX.2: captions -> what three inner layers of a language model say of their tokens.

Exactly as diffusers' Flux2KleinPipeline feeds it: each caption is a user's message in the tokenizer's own template, padded
to the full length. The language model does not see the padding, but the transformer is given what it makes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.encoders import load_frozen, stream
from oarlock_trainer.models.flux2.flavors import FLAVORS
from oarlock_trainer.models.folder import loading
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import ModelFlavor

LAYERS = (9, 18, 27)
"""Of Qwen3, whose outputs are taken."""


class CaptionEncoder:
    """Qwen3 with its tokenizer."""

    def __init__(self, model: Path, flavor: ModelFlavor, device: torch.device, *, streamed: bool = False) -> None:
        """bfloat16 on a GPU, float32 on the CPU. Layers behind the last one that is asked are not kept.

        With `streamed` the weights stay in the node's memory, and each layer's come to the device while it works.
        """
        from transformers import Qwen2TokenizerFast, Qwen3ForCausalLM  # noqa: PLC0415
        from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        disable_progress_bar()  # a bar per rank and encoder makes a log unreadable
        self._device = device
        self._network: Any = _shortened(load_frozen(Qwen3ForCausalLM, model / "text_encoder", "cpu", dtype=dtype))
        if streamed:
            stream(self._network, device)
        else:
            self._network.to(device)
        with loading(model / "tokenizer"):
            self._tokenizer = Qwen2TokenizerFast.from_pretrained(model / "tokenizer", local_files_only=True)
        self.tokens: int = min(FLAVORS[flavor].text_tokens, self._tokenizer.model_max_length)
        """Of a text, padding included."""

    @torch.no_grad()
    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
        """Captions -> texts (B, T, 3 d), bfloat16 on the CPU, nothing pooled (B, 0), and how many of T are no padding.

        The host waits for the GPU with the tokens, with the result and, streamed, with each layer's weights: for the
        caller's stream alone. The lengths are the tokenizer's own, on the CPU.
        """
        asked = [
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": caption}],
                tokenize=False,
                add_generation_prompt=True,
                enable_thinking=False,
            )
            for caption in captions
        ]
        found = self._tokenizer(
            asked, padding="max_length", max_length=self.tokens, truncation=True, return_tensors="pt"
        )
        states = self._network(
            input_ids=found.input_ids.to(self._device),
            attention_mask=found.attention_mask.to(self._device),
            output_hidden_states=True,
            use_cache=False,
        ).hidden_states
        texts = torch.cat([states[layer] for layer in LAYERS], dim=-1).to(torch.bfloat16).cpu()
        return texts, texts.new_zeros(len(captions), 0), [int(one) for one in found.attention_mask.sum(dim=1)]


def _shortened(whole: Any) -> Any:
    """The language model up to the last layer that is asked, and without what only the next word needs."""
    network = whole.model
    if len(network.layers) < LAYERS[-1]:
        raise ConfigurationError(
            f"training.model: its text encoder has {len(network.layers)} layers, of which the {LAYERS[-1]}th is asked: "
            "compare text_encoder/config.json with the original"
        )
    network.layers = network.layers[: LAYERS[-1]]
    network.config.num_hidden_layers = LAYERS[-1]
    network.norm = torch.nn.Identity()  # what is asked is the layers' own output
    return network
