"""A Qwen-Image model small enough for a laptop: the real layout and the real classes, random weights from a seed.

Everything that reads a Qwen-Image directory of diffusers reads this one: transformer, VAE, Qwen2.5-VL with its tokenizer,
scheduler. As in the published tokenizer, 34 tokens stand before a caption. Or Edit's: with a processor, before whose captions
stand 64, and a picture of twelve tokens at most. Nothing is downloaded. The pictures it draws mean nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.qwenimage import seen_captions, sight
from oarlock_trainer.models.qwenimage.captions import BEFORE, BEHIND, load_tokenizer
from oarlock_trainer.models.qwenimage.encoded import DROPPED, EDIT_DROPPED
from oarlock_trainer.models.qwenimage.family import QWEN_IMAGE
from oarlock_trainer.models.tiny_tokenizers import write_qwen_tokenizer
from oarlock_trainer.runtime.file_modes import make_ordinary

if TYPE_CHECKING:
    from pathlib import Path

TEXT_WIDTH = 32
LATENT_CHANNELS = 4
TEXT_TOKENS = 48
"""Shorter than Qwen-Image's 1024: most of a tiny step would be padding."""
SEEN = 12
"""Tokens of a picture that Edit's text encoder sees, at most."""
_MARKS = {
    "vision_start_token_id": "<|vision_start|>",
    "vision_end_token_id": "<|vision_end|>",
    "image_token_id": "<|image_pad|>",
    "video_token_id": "<|video_pad|>",
}
"""Of Edit's tokenizer, by what Qwen2.5-VL calls their numbers."""


def write(directory: Path, *, seed: int = 0, layers: int = 3, edit: bool = False) -> None:
    """Write the model, V1's, or else Edit's. The same seed gives the same bytes. Says nothing."""
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    directory.mkdir(parents=True, exist_ok=True)
    if edit:
        pieces = _write_processor(directory)
    else:
        pieces = write_qwen_tokenizer(directory / "tokenizer", tokens=TEXT_TOKENS + DROPPED, known=f"{BEFORE}{BEHIND}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = imported(QWEN_IMAGE.transformer)(
            in_channels=4 * LATENT_CHANNELS,
            out_channels=LATENT_CHANNELS,
            num_layers=layers,
            attention_head_dim=16,
            num_attention_heads=4,
            joint_attention_dim=TEXT_WIDTH,
            axes_dims_rope=(4, 6, 6),
        )
        vae = imported(QWEN_IMAGE.autoencoder)(
            base_dim=8,
            z_dim=LATENT_CHANNELS,
            dim_mult=[1, 1, 1, 1],
            num_res_blocks=1,
            latents_mean=[-0.3, 0.2, 0.1, -0.1],
            latents_std=[0.5, 0.8, 1.5, 1.2],
        )
        text_encoder = _text_encoder(pieces, _numbers(directory) if edit else {})
    torch.nn.Module.to(transformer, torch.bfloat16)  # diffusers' own .to() warns of modules that must not be
    transformer.save_pretrained(directory / "transformer")
    vae.save_pretrained(directory / "vae")
    text_encoder.save_pretrained(directory / "text_encoder")
    imported(QWEN_IMAGE.scheduler)(
        shift=1.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=0.9, base_image_seq_len=256,
        max_image_seq_len=8192, shift_terminal=0.02,
    ).save_pretrained(directory / "scheduler")  # fmt: skip
    (directory / "model_index.json").write_text(json.dumps(_model_index(edit=edit), indent=2) + "\n", encoding="utf-8")
    make_ordinary(directory)


def _write_processor(directory: Path) -> int:
    """The processor's settings and tokenizer, and the latter once more; returns the size of its vocabulary."""
    known = f"{seen_captions.BEFORE}{BEHIND}"
    for folder in ("tokenizer", sight.PROCESSOR):
        pieces = write_qwen_tokenizer(
            directory / folder, tokens=TEXT_TOKENS + EDIT_DROPPED, known=known, marks=list(_MARKS.values())
        )
    settings = {
        "image_processor_type": "Qwen2VLImageProcessor", "min_pixels": sight.EDGE**2, "max_pixels": SEEN * sight.EDGE**2,
        "patch_size": sight.PATCH, "merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    (directory / sight.PROCESSOR / "preprocessor_config.json").write_text(json.dumps(settings), encoding="utf-8")
    return pieces


def _text_encoder(pieces: int, marks: dict[str, int]) -> Any:
    """With a network for pictures, as the published one has: only Edit asks it. `marks`: by their names, their numbers."""
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration  # noqa: PLC0415

    return Qwen2_5_VLForConditionalGeneration(
        Qwen2_5_VLConfig(
            text_config={
                "vocab_size": pieces, "hidden_size": TEXT_WIDTH, "intermediate_size": 64, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512,
                "initializer_range": 0.2, "bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0,
                "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 1, 1]},
            },
            vision_config={
                "depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": TEXT_WIDTH,
                "fullatt_block_indexes": [0],
            },
            **marks,
        )
    )  # fmt: skip


def _numbers(directory: Path) -> dict[str, int]:
    tokenizer = load_tokenizer(directory / sight.PROCESSOR)
    return {name: tokenizer.convert_tokens_to_ids(mark) for name, mark in _MARKS.items()}


def _model_index(*, edit: bool) -> dict[str, Any]:
    from diffusers import __version__  # noqa: PLC0415

    return {
        "_class_name": "QwenImageEditPipeline" if edit else "QwenImagePipeline",
        "_diffusers_version": __version__,
        **({"processor": ["transformers", "Qwen2VLProcessor"]} if edit else {}),
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", "Qwen2_5_VLForConditionalGeneration"],
        "tokenizer": ["transformers", "Qwen2Tokenizer"],
        "transformer": ["diffusers", "QwenImageTransformer2DModel"],
        "vae": ["diffusers", "AutoencoderKLQwenImage"],
    }
