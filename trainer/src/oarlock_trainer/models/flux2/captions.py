"""The text encoder of FLUX.2: captions -> what three inner layers of a language model say of their tokens.

Each caption is a message in the tokenizer's own template, padded to the full length (language_models.py). The language model
does not see the padding, but the transformer is given what it makes of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.encoders import load_frozen, stream
from oarlock_trainer.models.flux2.flavors import FLAVORS
from oarlock_trainer.models.flux2.language_models import language_model
from oarlock_trainer.models.folder import loading
from oarlock_trainer.runtime.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import ModelFlavor


class CaptionEncoder:
    """A variant's language model with its tokenizer."""

    def __init__(self, model: Path, flavor: ModelFlavor, device: torch.device, *, streamed: bool = False) -> None:
        """bfloat16 on a GPU, float32 on the CPU. Layers behind the last one that is asked are not kept.

        With `streamed` the weights stay in the node's memory, and each layer's come to the device while it works.
        """
        import transformers  # noqa: PLC0415
        from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

        dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        disable_progress_bar()  # a bar per rank and encoder makes a log unreadable
        self._device = device
        self._asked = asked = language_model(flavor)
        whole = load_frozen(getattr(transformers, asked.model), model / "text_encoder", "cpu", dtype=dtype)
        self._network: Any = _shortened(asked.network(whole), asked.layers[-1])
        if streamed:
            stream(self._network, device)
        else:
            self._network.to(device)
        with loading(model / "tokenizer"):
            kind = getattr(transformers, asked.tokenizer)
            self._tokenizer = kind.from_pretrained(model / "tokenizer", local_files_only=True)
        self.tokens: int = min(FLAVORS[flavor].text_tokens, self._tokenizer.model_max_length)
        """Of a text, padding included."""

    @torch.no_grad()
    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
        """Captions -> texts (B, T, 3 d), bfloat16 on the CPU, nothing pooled (B, 0), and how many of T are no padding.

        Where the tokenizer pads in front, none of T is told to be padding: what is told stands behind the text. The host
        waits for the GPU with the tokens, with the result and, streamed, with each layer's weights: for the caller's stream
        alone. The lengths are the tokenizer's own, on the CPU.
        """
        found = self._asked.ask(self._tokenizer, captions, self.tokens)
        states = self._network(
            input_ids=found["input_ids"].to(self._device),
            attention_mask=found["attention_mask"].to(self._device),
            output_hidden_states=True,
            use_cache=False,
        ).hidden_states
        texts = torch.cat([states[layer] for layer in self._asked.layers], dim=-1).to(torch.bfloat16).cpu()
        lengths = [int(one) for one in found["attention_mask"].sum(dim=1)]
        if self._tokenizer.padding_side == "left":
            lengths = [self.tokens] * len(captions)
        return texts, texts.new_zeros(len(captions), 0), lengths


def _shortened(network: Any, layers: int) -> Any:
    """The language model up to the last layer that is asked, and without what only the next word needs."""
    if len(network.layers) < layers:
        raise ConfigurationError(
            f"training.model: its text encoder has {len(network.layers)} layers, of which the {layers}th is asked: "
            "compare text_encoder/config.json with the original"
        )
    network.layers = network.layers[:layers]
    network.config.num_hidden_layers = layers
    network.norm = torch.nn.Identity()  # what is asked is the layers' own output
    return network
