"""What is published of each family, and what of it is counted once more from the classes themselves: a record of each.

A new family adds its own to COUNTED.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from diffusers import (
    AutoencoderKLFlux2,
    AutoencoderKLQwenImage,
    AutoencoderKLWan,
    Flux2Transformer2DModel,
    FluxTransformer2DModel,
    QwenImageTransformer2DModel,
    SD3Transformer2DModel,
    WanTransformer3DModel,
    ZImageTransformer2DModel,
)
from published_networks import flux_vae, mistral, qwen2_5_vl, qwen3, t5, umt5, without_norm

from oarlock_api.weights import ModelFamily, ModelFlavor
from oarlock_trainer.models.families import FAMILIES
from oarlock_trainer.plan.counting import descriptions
from oarlock_trainer.plan.counting.arguments import Shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oarlock_trainer.models.family import Family
    from oarlock_trainer.plan.counting.arguments import Description

Config = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A model that is planned for where none is at hand."""

    flavor: ModelFlavor | None
    config: str
    """Its name among the family's."""
    parameters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """One family."""

    key: ModelFamily
    transformer: Callable[..., Any]
    description: Description
    configs: Mapping[str, Config]
    published: tuple[Published, ...]
    small: tuple[str, ...] = ("small",)
    """Configurations whose blocks are counted."""
    shapes: Shapes = Shapes(rows=64, columns=64, text=512, batch=2)  # noqa: RUF009 - frozen
    less: float = 0.0
    """Share of what is planned that a block may keep less."""
    widths: float = 0.0
    """Widths a token that it may keep less, beside that."""
    compiled: tuple[str, ...] | None = None
    """Kinds of blocks that are also counted as compiled, which takes seconds; None: all."""
    refused: tuple[tuple[Config, str], ...] = ()
    """Changes of the first configuration, and what is said of them."""
    vae: Callable[[], Any]
    frames: bool = False
    """The VAE's pictures are videos of one frame."""
    vae_less: float = 0.0
    """Share of what is planned that the VAE may have less alive."""
    encoders: Mapping[ModelFlavor | None, Callable[[], Any]] = field(default_factory=dict)
    """The network of texts, up to the layer that is asked."""

    @property
    def family(self) -> Family:
        return FAMILIES[self.key]

    def takes(self, found: float, planned: float) -> bool:
        """Whether a block that keeps as much is planned for, and not much better than that. In widths a token."""
        return (1.0 - self.less) * planned - self.widths < found <= planned


FLUX1: Config = {
    "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "guidance_embeds": True, "in_channels": 64,
    "joint_attention_dim": 4096, "num_attention_heads": 24, "num_layers": 19, "num_single_layers": 38,
    "out_channels": None, "patch_size": 1, "pooled_projection_dim": 768,
}  # fmt: skip
FLUX2: Config = {
    "attention_head_dim": 128, "axes_dims_rope": [32, 32, 32, 32], "eps": 1e-6, "guidance_embeds": False,
    "in_channels": 128, "joint_attention_dim": 7680, "mlp_ratio": 3.0, "num_attention_heads": 24, "num_layers": 5,
    "num_single_layers": 20, "out_channels": None, "patch_size": 1, "rope_theta": 2000,
    "timestep_guidance_channels": 256,
}  # fmt: skip
Z_IMAGE: Config = {
    "all_patch_size": [2], "all_f_patch_size": [1], "in_channels": 16, "dim": 3840, "n_layers": 30, "n_refiner_layers": 2,
    "n_heads": 30, "n_kv_heads": 30, "qk_norm": True, "cap_feat_dim": 2560,
}  # fmt: skip
SD3: Config = {
    "attention_head_dim": 64, "caption_projection_dim": 2432, "dual_attention_layers": [], "in_channels": 16,
    "joint_attention_dim": 4096, "num_attention_heads": 38, "num_layers": 38, "out_channels": 16, "patch_size": 2,
    "pooled_projection_dim": 2048, "pos_embed_max_size": 192, "qk_norm": "rms_norm", "sample_size": 128,
}  # fmt: skip
SD3_SMALL = SD3 | {
    "caption_projection_dim": 128, "dual_attention_layers": [0, 1], "num_attention_heads": 2, "num_layers": 5,
    "joint_attention_dim": 64, "pos_embed_max_size": 64,
}  # fmt: skip
QWEN_IMAGE: Config = {
    "attention_head_dim": 128, "axes_dims_rope": [16, 56, 56], "guidance_embeds": False, "in_channels": 64,
    "joint_attention_dim": 3584, "num_attention_heads": 24, "num_layers": 60, "out_channels": 16, "patch_size": 2,
}  # fmt: skip
WAN: Config = {
    "added_kv_proj_dim": None, "attention_head_dim": 128, "cross_attn_norm": True, "eps": 1e-6, "ffn_dim": 8960,
    "freq_dim": 256, "image_dim": None, "in_channels": 16, "num_attention_heads": 12, "num_layers": 30, "out_channels": 16,
    "patch_size": [1, 2, 2], "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024, "text_dim": 4096,
}  # fmt: skip
WAN_SMALL = WAN | {"ffn_dim": 2240, "num_attention_heads": 3, "num_layers": 2, "text_dim": 64}

COUNTED = (
    Counted(
        key=ModelFamily.FLUX1, transformer=FluxTransformer2DModel, description=descriptions.FLUX1,
        configs={
            "dev": FLUX1, "schnell": FLUX1 | {"guidance_embeds": False},
            "odd": FLUX1
            | {"num_layers": 1, "num_single_layers": 3, "out_channels": 16, "patch_size": 2, "in_channels": 32},
            "small": FLUX1
            | {"num_attention_heads": 4, "num_layers": 1, "num_single_layers": 1, "joint_attention_dim": 64},
        },
        published=(Published(flavor=None, config="dev", parameters=11_901_408_320),), widths=0.1, compiled=(),
        vae=flux_vae, encoders={None: t5},
    ),
    Counted(
        key=ModelFamily.FLUX2, transformer=Flux2Transformer2DModel, description=descriptions.FLUX2,
        configs={
            "4B": FLUX2,
            "9B": FLUX2
            | {"joint_attention_dim": 12_288, "num_attention_heads": 32, "num_layers": 8, "num_single_layers": 24},
            "odd": FLUX2
            | {"num_layers": 1, "guidance_embeds": True, "out_channels": 16, "mlp_ratio": 2.5, "in_channels": 32},
            "small": FLUX2
            | {"num_attention_heads": 4, "num_layers": 1, "num_single_layers": 1, "joint_attention_dim": 64},
            "dev": FLUX2
            | {
                "guidance_embeds": True, "joint_attention_dim": 15_360, "num_attention_heads": 48, "num_layers": 8,
                "num_single_layers": 48,
            },
        },
        published=(
            Published(flavor=None, config="4B", parameters=3_875_544_576),
            Published(flavor=ModelFlavor.KLEIN_9B, config="9B", parameters=9_078_581_248),
            Published(flavor=ModelFlavor.DEV, config="dev", parameters=32_223_281_152),
        ),
        widths=0.1, vae=AutoencoderKLFlux2,
        encoders={
            None: lambda: without_norm(qwen3(2560, 9728, 27)),
            ModelFlavor.KLEIN_9B: lambda: without_norm(qwen3(4096, 12_288, 27)),
            ModelFlavor.DEV: lambda: without_norm(mistral()),
        },
    ),
    Counted(
        key=ModelFamily.Z_IMAGE, transformer=ZImageTransformer2DModel, description=descriptions.Z_IMAGE,
        configs={
            "published": Z_IMAGE,
            "small": Z_IMAGE
            | {
                "dim": 96, "n_heads": 6, "n_kv_heads": 6, "n_layers": 3, "n_refiner_layers": 1, "in_channels": 8,
                "cap_feat_dim": 40, "axes_dims": [4, 6, 6], "axes_lens": [64, 32, 32],
            },
        },
        published=(Published(flavor=None, config="published", parameters=6_154_908_736),), small=("published",),
        widths=0.1, compiled=("layers",),
        refused=(
            ({"siglip_feat_dim": 1152}, "siglip_feat_dim"),
            ({"all_patch_size": [2, 4]}, "all_patch_size"),
            ({"qk_norm": False}, "qk_norm"),
        ),
        vae=flux_vae, encoders={None: lambda: qwen3(2560, 9728, 36, tie_word_embeddings=True)},
    ),
    Counted(
        key=ModelFamily.STABLE_DIFFUSION_3, transformer=SD3Transformer2DModel, description=descriptions.STABLE_DIFFUSION_3,
        configs={
            "large": SD3,
            "medium": SD3
            | {
                "caption_projection_dim": 1536, "dual_attention_layers": list(range(13)), "num_attention_heads": 24,
                "num_layers": 24, "pos_embed_max_size": 384,
            },
            "small": SD3_SMALL,
            "odd": SD3_SMALL
            | {"dual_attention_layers": [1, 4], "qk_norm": None, "in_channels": 8, "out_channels": None},
        },
        published=(
            Published(flavor=None, config="large", parameters=8_056_627_520),
            Published(flavor=ModelFlavor.MEDIUM, config="medium", parameters=2_243_171_520),
        ),
        shapes=Shapes(rows=32, columns=32, text=83, batch=2), less=0.05, compiled=(), vae=flux_vae, encoders={None: t5},
    ),
    Counted(
        key=ModelFamily.QWEN_IMAGE, transformer=QwenImageTransformer2DModel, description=descriptions.QWEN_IMAGE,
        configs={
            "published": QWEN_IMAGE,
            "small": QWEN_IMAGE
            | {"num_attention_heads": 4, "num_layers": 2, "joint_attention_dim": 64, "in_channels": 32, "out_channels": 8},
        },
        published=(Published(flavor=None, config="published", parameters=20_430_401_088),), widths=0.1,
        refused=(
            ({"guidance_embeds": True}, "guidance_embeds"),
            ({"zero_cond_t": True}, "zero_cond_t"),
            ({"causal_condition": True}, "causal_condition"),
            ({"use_layer3d_rope": True, "use_additional_t_cond": True}, "use_additional_t_cond, use_layer3d_rope"),
            ({"in_channels": 128}, "in_channels"),
        ),
        vae=AutoencoderKLQwenImage, frames=True, vae_less=0.001, encoders={None: qwen2_5_vl},
    ),
    Counted(
        key=ModelFamily.WAN, transformer=WanTransformer3DModel, description=descriptions.WAN,
        configs={
            "1.3B": WAN, "14B": WAN | {"ffn_dim": 13_824, "num_attention_heads": 40, "num_layers": 40}, "small": WAN_SMALL,
            "small 14B": WAN_SMALL | {"ffn_dim": 1728, "num_attention_heads": 5},
        },
        published=(
            Published(flavor=ModelFlavor.T2V1_3B, config="1.3B", parameters=1_418_996_800),
            Published(flavor=ModelFlavor.T2V14B, config="14B", parameters=14_288_491_584),
        ),
        small=("small", "small 14B"), shapes=Shapes(rows=30, columns=52, text=512, batch=2, frames=5), less=0.06,
        refused=(
            ({"image_dim": 1280, "added_kv_proj_dim": 5120}, "image_dim, added_kv_proj_dim: .* is given a first frame"),
            ({"in_channels": 36}, "in_channels"),
            ({"patch_size": [2, 2, 2]}, "patch_size"),
            ({"cross_attn_norm": False}, "cross_attn_norm"),
        ),
        vae=AutoencoderKLWan, frames=True, vae_less=0.001, encoders={None: umt5},
    ),
)  # fmt: skip
"""Of Wan's small ones the feed-forward parts are as wide, beside their width, as those of 1.3B and of 14B; 17 frames of 832 x
480 pixels. Stable Diffusion 3.5's compiled blocks were counted once: that takes a minute. FLUX.1's are really built
(plan/test_activations.py), and Z-Image's refiners are as its layers."""
