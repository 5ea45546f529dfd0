"""The text encoder of Qwen-Image-Edit: captions, each behind the picture that it is to change.

As diffusers' QwenImageEditPipeline feeds it, but for one thing: the tokens of the picture are told as such, so that
Qwen2.5-VL gives them rows and columns, as it did when the model was trained. With transformers 5 that pipeline does not tell
it (https://github.com/huggingface/diffusers/issues/14194), and they are taken for words in a line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence

from oarlock_trainer.models.qwenimage import sight
from oarlock_trainer.models.qwenimage.captions import BEHIND, load_network, load_tokenizer
from oarlock_trainer.models.qwenimage.encoded import EDIT_DROPPED, words

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from oarlock_api.weights import ModelFlavor

BEFORE = (
    "<|im_start|>system\nDescribe the key features of the input image (color, shape, size, texture, objects, background), "
    "then explain how the user's text instruction should alter or modify the image. Generate a new image that meets the "
    "user's requirements while maintaining consistency with the original input where appropriate.<|im_end|>\n"
    "<|im_start|>user\n"
)
"""64 tokens, which are dropped. The model was trained with these words: they are no text of ours, and must not change."""
_PICTURE = "<|image_pad|>"
_SEEN = "<|vision_start|>{}<|vision_end|>"
_OF_PICTURES = (_PICTURE, "<|video_pad|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>")


class SeeingEncoder:
    """Qwen2.5-VL, its network for pictures included, with its tokenizer."""

    def __init__(self, model: Path, flavor: ModelFlavor, device: torch.device) -> None:
        """bfloat16 on a GPU, float32 on the CPU."""
        self._device = device
        self._network = load_network(model, device).to(device)
        self._tokenizer = load_tokenizer(model / sight.PROCESSOR)
        self._bounds = sight.read_bounds(model)
        self._words = words(flavor, self._tokenizer.model_max_length)
        self._mark = self._tokenizer.convert_tokens_to_ids(_PICTURE)

    @torch.no_grad()
    def encode(self, captions: Sequence[str], references: Sequence[np.ndarray]) -> tuple[Tensor, Tensor, list[int]]:
        """Captions and their references, (H, W, 3) uint8 -> as of `CaptionEncoder`, padded to the longest of them.

        A caption's sequence has the picture's tokens before its words. The host waits for the GPU, as there.
        """
        seen, grids = zip(*(sight.patches(one, self._bounds) for one in references), strict=True)
        given = [self._tokens(caption, sight.tokens(grid)) for caption, grid in zip(captions, grids, strict=True)]
        lengths = [len(one) for one in given]
        ids = pad_sequence(given, batch_first=True)
        mask = torch.arange(ids.shape[1])[None, :] < torch.tensor(lengths)[:, None]
        states = self._network(
            input_ids=ids.to(self._device),
            attention_mask=mask.long().to(self._device),
            pixel_values=torch.from_numpy(np.concatenate(seen)).to(self._device),
            image_grid_thw=torch.tensor([(1, *grid) for grid in grids], device=self._device),
            mm_token_type_ids=(ids == self._mark).int().to(self._device),
            use_cache=False,
        ).last_hidden_state
        texts = (states * mask[..., None].to(states))[:, EDIT_DROPPED:].to(torch.bfloat16).cpu()
        return texts, texts.new_zeros(len(captions), 0), [length - EDIT_DROPPED for length in lengths]

    def _tokens(self, caption: str, picture: int) -> Tensor:
        """(T,) int64: the system's turn, the picture's place, and as much of the caption and what ends its turn as may be."""
        before: list[int] = self._tokenizer(f"{BEFORE}{_SEEN.format(_PICTURE * picture)}").input_ids
        for mark in _OF_PICTURES:  # in a caption they would stand for pictures that are not there
            caption = caption.replace(mark, " ")
        text: list[int] = self._tokenizer(f"{caption}{BEHIND}").input_ids
        return torch.tensor([*before, *text[: self._words]])
