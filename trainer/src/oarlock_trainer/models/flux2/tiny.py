"""A FLUX.2 small enough for a laptop: the real layout and the real classes, random weights from a seed.

Everything that reads a Klein directory of diffusers reads this one: transformer, VAE, Qwen3 with its tokenizer and chat
template, scheduler. Or Dev's: with Mistral3, and a tokenizer in place of the processor that needs torchvision. Nothing is
downloaded. The pictures it draws mean nothing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch

from oarlock_trainer.models.classes import imported
from oarlock_trainer.models.flux2.encoded import LAYERS
from oarlock_trainer.models.flux2.family import FLUX2
from oarlock_trainer.models.flux2.language_models import MISTRAL, QWEN3, SYSTEM
from oarlock_trainer.models.tiny_tokenizers import write_mistral_tokenizer, write_qwen_tokenizer
from oarlock_trainer.runtime.file_modes import make_ordinary

if TYPE_CHECKING:
    from pathlib import Path

WIDTH = 16
"""Of the language model."""
LATENT_CHANNELS = 4
"""Of the VAE: four times as many of a latent."""
TEXT_TOKENS = 96
"""Shorter than FLUX.2's 512: most of a tiny step would be padding."""


def write(directory: Path, *, seed: int = 0, layers: int = 2, single_layers: int = 4, dev: bool = False) -> None:
    """Write the model, a Klein, or else Dev's. The same seed gives the same bytes. Says nothing."""
    from transformers.utils.logging import disable_progress_bar  # noqa: PLC0415

    disable_progress_bar()
    directory.mkdir(parents=True, exist_ok=True)
    if dev:
        pieces = write_mistral_tokenizer(directory / "tokenizer", tokens=TEXT_TOKENS, known=SYSTEM)
    else:
        pieces = write_qwen_tokenizer(directory / "tokenizer", tokens=TEXT_TOKENS)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        transformer = imported(FLUX2.transformer)(
            in_channels=4 * LATENT_CHANNELS,
            num_layers=layers,
            num_single_layers=single_layers,
            attention_head_dim=16,
            num_attention_heads=4,
            joint_attention_dim=LAYERS * WIDTH,
            guidance_embeds=dev,
            axes_dims_rope=(4, 4, 4, 4),
        )
        vae = _autoencoder()
        text_encoder = (_mistral if dev else _qwen)(pieces)
    torch.nn.Module.to(
        transformer, torch.bfloat16
    )  # diffusers' own .to() warns of modules that must not be, naming none
    transformer.save_pretrained(directory / "transformer")
    vae.save_pretrained(directory / "vae")
    text_encoder.save_pretrained(directory / "text_encoder")
    imported(FLUX2.scheduler)(
        shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15, base_image_seq_len=256,
        max_image_seq_len=4096,
    ).save_pretrained(directory / "scheduler")  # fmt: skip
    (directory / "model_index.json").write_text(json.dumps(_model_index(dev=dev), indent=2) + "\n", encoding="utf-8")
    make_ordinary(directory)


def _autoencoder() -> Any:
    """With statistics that are no zeros and ones, or nobody would see whether they are used."""
    vae = imported(FLUX2.autoencoder)(
        down_block_types=("DownEncoderBlock2D",) * 4,
        up_block_types=("UpDecoderBlock2D",) * 4,
        block_out_channels=(8, 8, 8, 8),
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=4,
        sample_size=64,
    )
    torch.nn.init.uniform_(vae.bn.running_mean, -0.3, 0.3)
    torch.nn.init.uniform_(vae.bn.running_var, 0.2, 1.5)
    return vae


def _qwen(pieces: int) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM  # noqa: PLC0415

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=pieces, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_hidden_layers=QWEN3.layers[-1] + 1,
            num_attention_heads=2, num_key_value_heads=1, head_dim=WIDTH // 2, max_position_embeddings=512,
            initializer_range=0.2, tie_word_embeddings=True, bos_token_id=None, eos_token_id=2, pad_token_id=0,
        )
    )  # fmt: skip


def _mistral(pieces: int) -> Any:
    """With a network for pictures, as the published one has: nobody asks it."""
    from transformers import Mistral3Config, Mistral3ForConditionalGeneration  # noqa: PLC0415

    return Mistral3ForConditionalGeneration(
        Mistral3Config(
            text_config={
                "model_type": "mistral", "vocab_size": pieces, "hidden_size": WIDTH, "intermediate_size": 2 * WIDTH,
                "num_hidden_layers": MISTRAL.layers[-1] + 1, "num_attention_heads": 2, "num_key_value_heads": 1,
                "head_dim": WIDTH // 2, "max_position_embeddings": 512, "initializer_range": 0.2,
                "sliding_window": None, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
            },
            vision_config={
                "model_type": "pixtral", "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                "num_attention_heads": 2, "head_dim": 8, "image_size": 28, "patch_size": 14,
            },
            tie_word_embeddings=False,
        )
    )  # fmt: skip


def _model_index(*, dev: bool) -> dict[str, Any]:
    from diffusers import __version__  # noqa: PLC0415

    model = MISTRAL if dev else QWEN3
    return {
        "_class_name": "Flux2Pipeline" if dev else "Flux2KleinPipeline",
        "_diffusers_version": __version__,
        **({} if dev else {"is_distilled": False}),
        "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
        "text_encoder": ["transformers", model.model],
        "tokenizer": ["transformers", model.tokenizer],
        "transformer": ["diffusers", "Flux2Transformer2DModel"],
        "vae": ["diffusers", "AutoencoderKLFlux2"],
    }
