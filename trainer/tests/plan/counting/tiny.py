"""Small configurations of six transformers of diffusers, and their classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from oarlock_trainer.plan.counting import descriptions
from oarlock_trainer.plan.counting.arguments import Description


@dataclass(frozen=True, kw_only=True)
class Model:
    """`more` blocks of the kind `grown` are added by the key `key` of the configuration."""

    module: str
    name: str
    description: Description
    config: dict[str, Any]
    key: str = "num_layers"
    grown: str = "transformer_blocks"

    def load(self) -> Any:
        return getattr(import_module(f"diffusers.models.transformers.transformer_{self.module}"), self.name)

    def with_more(self, more: int) -> Model:
        return replace(self, config=self.config | {self.key: self.config[self.key] + more})


FLUX1 = Model(
    module="flux", name="FluxTransformer2DModel", description=descriptions.FLUX1,
    config={
        "num_layers": 2, "num_single_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2, "in_channels": 8,
        "joint_attention_dim": 32, "pooled_projection_dim": 16, "guidance_embeds": True, "axes_dims_rope": (4, 6, 6),
    },
)  # fmt: skip
FLUX1_SINGLE = replace(FLUX1, key="num_single_layers", grown="single_transformer_blocks")
FLUX2 = Model(
    module="flux2", name="Flux2Transformer2DModel", description=descriptions.FLUX2,
    key="num_single_layers", grown="single_transformer_blocks",
    config={
        "num_layers": 2, "num_single_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2, "in_channels": 8,
        "joint_attention_dim": 32, "timestep_guidance_channels": 32, "axes_dims_rope": (4, 4, 4, 4),
    },
)  # fmt: skip
Z_IMAGE = Model(
    module="z_image", name="ZImageTransformer2DModel", description=descriptions.Z_IMAGE, key="n_layers", grown="layers",
    config={
        "in_channels": 4, "dim": 64, "n_layers": 2, "n_refiner_layers": 1, "n_heads": 2, "n_kv_heads": 2,
        "cap_feat_dim": 32, "axes_dims": [8, 12, 12], "axes_lens": [256, 64, 64],
    },
)  # fmt: skip
QWEN_IMAGE = Model(
    module="qwenimage", name="QwenImageTransformer2DModel", description=descriptions.QWEN_IMAGE,
    config={
        "num_layers": 2, "attention_head_dim": 16, "num_attention_heads": 2, "in_channels": 8, "out_channels": 2,
        "joint_attention_dim": 32, "axes_dims_rope": (4, 6, 6),
    },
)  # fmt: skip
SD_3 = Model(
    module="sd3", name="SD3Transformer2DModel", description=descriptions.STABLE_DIFFUSION_3, grown="transformer_blocks.2",
    config={
        "sample_size": 32, "num_layers": 5, "attention_head_dim": 16, "num_attention_heads": 2, "in_channels": 4,
        "out_channels": 4, "joint_attention_dim": 32, "caption_projection_dim": 32, "pooled_projection_dim": 16,
        "pos_embed_max_size": 32, "dual_attention_layers": (0, 1), "qk_norm": "rms_norm",
    },
)  # fmt: skip
WAN = Model(
    module="wan", name="WanTransformer3DModel", description=descriptions.WAN, grown="blocks",
    config={
        "num_layers": 2, "attention_head_dim": 24, "num_attention_heads": 2, "in_channels": 4, "out_channels": 4,
        "text_dim": 32, "freq_dim": 32, "ffn_dim": 96, "rope_max_seq_len": 64,
    },
)  # fmt: skip
ALL = [FLUX1, FLUX1_SINGLE, FLUX2, Z_IMAGE, QWEN_IMAGE, SD_3, WAN]
