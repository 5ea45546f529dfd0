"""What the transformers of some families are called with in training: diffusers' argument names and shapes, as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_trainer.plan.counting.arguments import Each, One, Sizes, Values, Where

if TYPE_CHECKING:
    from oarlock_trainer.plan.counting.arguments import Description

FLUX1: Description = {
    "hidden_states": Values(("batch", "image", "in_channels")),
    "encoder_hidden_states": Values(("batch", "text", "joint_attention_dim")),
    "pooled_projections": Values(("batch", "pooled_projection_dim")),
    "timestep": Values(("batch",)),
    "guidance": Where("guidance_embeds", Values(("batch",))),
    "img_ids": Values(("image", 3), "float32"),
    "txt_ids": Values(("text", 3), "float32"),
}
FLUX2: Description = {
    "hidden_states": Values(("batch", "image", "in_channels")),
    "encoder_hidden_states": Values(("batch", "text", "joint_attention_dim")),
    "timestep": Values(("batch",)),
    "guidance": Where("guidance_embeds", Values(("batch",))),
    "img_ids": Values(("image", 4), "float32"),
    "txt_ids": Values(("text", 4), "float32"),
}
Z_IMAGE: Description = {
    "x": Each(Values(("in_channels", "frames", "latent_rows", "latent_columns"))),
    "t": Values(("batch",)),
    "cap_feats": Each(Values(("text", "cap_feat_dim"))),
}
"""It pads image and text to multiples of 32 tokens each."""
QWEN_IMAGE: Description = {
    "hidden_states": Values(("batch", "image", "in_channels")),
    "encoder_hidden_states": Values(("batch", "text", "joint_attention_dim")),
    "timestep": Values(("batch",)),
    "img_shapes": Each(One(Sizes(("frames", "rows", "columns")))),
}
STABLE_DIFFUSION_3: Description = {
    "hidden_states": Values(("batch", "in_channels", "latent_rows", "latent_columns")),
    "encoder_hidden_states": Values(("batch", "text", "joint_attention_dim")),
    "pooled_projections": Values(("batch", "pooled_projection_dim")),
    "timestep": Values(("batch",)),
}
WAN: Description = {
    "hidden_states": Values(("batch", "in_channels", "frames", "latent_rows", "latent_columns")),
    "timestep": Values(("batch",)),
    "encoder_hidden_states": Values(("batch", "text", "text_dim")),
}
"""Text to video: image to video has another argument."""
