"""diffusers' pipeline of Qwen-Image-Edit over the tiny model, with what it lacks here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from diffusers import QwenImageEditPipeline
from transformers import BatchFeature, ProcessorMixin, Qwen2VLImageProcessorPil

from oarlock_trainer.models.qwenimage import sight
from oarlock_trainer.models.qwenimage.captions import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from PIL import Image

_PICTURE = "<|image_pad|>"


class Processor(ProcessorMixin):  # type: ignore[misc]
    """What Qwen2VLProcessor makes of texts with a picture each. That class wants one of videos, which needs torchvision."""

    def __init__(self, model: Path) -> None:
        self._pictures = Qwen2VLImageProcessorPil.from_pretrained(model / sight.PROCESSOR)
        self.tokenizer = load_tokenizer(model / sight.PROCESSOR)

    def __call__(
        self, *, text: Sequence[str], images: Image.Image | Sequence[Image.Image], padding: bool, return_tensors: str
    ) -> BatchFeature:
        seen = self._pictures(images, return_tensors=return_tensors)
        each = seen.image_grid_thw.prod(dim=1) // 4
        whole = [one.replace(_PICTURE, _PICTURE * int(tokens)) for one, tokens in zip(text, each, strict=True)]
        return BatchFeature(
            {**self.tokenizer(whole, padding=padding, padding_side="right", return_tensors=return_tensors), **seen}
        )


def load(model: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The pipeline, silent.

    Its text encoder is told which tokens are a picture's, which the pipeline itself forgets with transformers 5
    (https://github.com/huggingface/diffusers/issues/14194).
    """
    found: Any = QwenImageEditPipeline.from_pretrained(model, processor=Processor(model), dtype=dtype)
    found.set_progress_bar_config(disable=True)
    encoder = found.text_encoder
    bare = encoder.forward

    def told(input_ids: torch.Tensor, **given: Any) -> Any:
        return bare(input_ids, mm_token_type_ids=(input_ids == encoder.config.image_token_id).int(), **given)

    encoder.forward = told
    return found
