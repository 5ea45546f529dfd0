"""The text encoder of Qwen-Image: captions -> what the last layer of a language model makes of them, as a user's turn.

Exactly as diffusers' QwenImagePipeline feeds it: behind a system's turn that asks for a description, of whose tokens nothing
is kept. The language model is that of Qwen2.5-VL, whose network for pictures has nothing to see here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from oarlock_trainer.models.encoders import load_frozen, stream
from oarlock_trainer.models.folder import loading
from oarlock_trainer.models.qwenimage.encoded import DROPPED, text_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import ModelFlavor

BEFORE = (
    "<|im_start|>system\nDescribe the image by detailing the color, shape, size, texture, quantity, text, spatial "
    "relationships of the objects and background:<|im_end|>\n<|im_start|>user\n"
)
"""34 tokens. The model was trained with these words: they are no text of ours, and must not change."""
BEHIND = "<|im_end|>\n<|im_start|>assistant\n"


def load_network(model: Path, device: torch.device) -> Any:
    """Qwen2.5-VL without its last layer, in the node's memory: bfloat16 for a GPU, float32 for the CPU."""
    from transformers import Qwen2_5_VLForConditionalGeneration  # noqa: PLC0415
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    disable_progress_bar()  # a bar per rank and encoder makes a log unreadable
    return load_frozen(Qwen2_5_VLForConditionalGeneration, model / "text_encoder", "cpu", dtype=dtype).model


def load_tokenizer(folder: Path) -> Any:
    """Raises ConfigurationError, StorageError."""
    from transformers import Qwen2Tokenizer  # noqa: PLC0415

    with loading(folder):
        return Qwen2Tokenizer.from_pretrained(folder, local_files_only=True)


class CaptionEncoder:
    """The language model of Qwen2.5-VL with its tokenizer."""

    def __init__(self, model: Path, flavor: ModelFlavor, device: torch.device, *, streamed: bool = False) -> None:
        """bfloat16 on a GPU, float32 on the CPU. Only the language model comes to the device.

        With `streamed` the weights stay in the node's memory, and each layer's come to the device while it works.
        """
        self._device = device
        self._network: Any = load_network(model, device).language_model
        if streamed:
            stream(self._network, device)
        else:
            self._network.to(device)
        self._tokenizer = load_tokenizer(model / "tokenizer")
        self.tokens: int = text_tokens(flavor, self._tokenizer.model_max_length)
        """Of a text, padding included, and without what stands before it."""

    @torch.no_grad()
    def encode(self, captions: Sequence[str]) -> tuple[Tensor, Tensor, list[int]]:
        """Captions -> texts (B, T, t) and vectors of no width (B, 0), bfloat16 on the CPU, and how many of T are no padding.

        Behind the longest caption stand zeros: the language model looks back only, and is not asked for what nobody sees.
        The host waits for the GPU with the tokens, with the result and, streamed, with each layer's weights: for the
        caller's stream alone. The lengths are the tokenizer's own, on the CPU.
        """
        given = self._tokenizer(
            [f"{BEFORE}{caption}{BEHIND}" for caption in captions],
            padding=True,
            padding_side="right",
            max_length=self.tokens + DROPPED,
            truncation=True,
            return_tensors="pt",
        )
        states = self._network(
            input_ids=given.input_ids.to(self._device),
            attention_mask=given.attention_mask.to(self._device),
            use_cache=False,
        ).last_hidden_state
        texts = states[:, DROPPED:].to(torch.bfloat16).cpu()
        lengths = [int(length) - DROPPED for length in given.attention_mask.sum(dim=1)]
        return pad(texts, (0, 0, 0, self.tokens - texts.shape[1])), texts.new_zeros(len(captions), 0), lengths
