"""lycoris_config.json: an adapter of LyCORIS, and the preset that says which layers get one."""

from __future__ import annotations

from oarlock_import.rows import Kind, Row, ignored, judged, mapped, refused

_CONVOLUTIONS = "no convolution is trained"
_BY_CLASS = "layers are chosen by target_module and module_algo_map: Attention and FeedForward"

LYCORIS: tuple[Row, ...] = (
    mapped("algo", "training.lora.algorithm", Kind.TEXT, default="lora", words={"lokr": "LoKr"}),
    judged("linear_dim", "training.lora.rank or training.lora.lokr.fullMatrix", Kind.WHOLE, default=4),
    judged("linear_alpha", "training.lora.alpha", Kind.WHOLE, default=1),
    judged("factor", "training.lora.lokr.factor", Kind.WHOLE, default=-1),
    judged("full_matrix", "training.lora.lokr.fullMatrix", Kind.SWITCH, default=False),
    judged("decompose_both", "training.lora.lokr.decomposeBoth", Kind.SWITCH, default=False),
    judged("apply_preset", "training.lora.targets and training.lora.lokr.factors", Kind.ANY),
    *refused("a multiplier other than 1 is not here", "multiplier", unless=(1,)),
    *refused("the update has no scalar of its own", "use_scalar"),
    *refused("weights are not taken into direction and length (DoRA)", "dora_wd"),
    *refused(
        "only dropout of the layer's input is here: training.lora.dropout", "rank_dropout module_dropout", unless=(0,)
    ),
    *refused("alpha is divided by the rank, not by its root", "rs_lora"),
    *refused("the smaller factor comes first", "unbalanced_factorization"),
    *refused("norms are not trained beside adapters", "train_norm"),
    *refused("write the layers into apply_preset", "preset"),
    *ignored("LyCORIS' LoKr has none", "dropout"),
    *ignored("the update is never written out here", "bypass_mode"),
    *ignored("belongs to another algo", "block_size constraint rescaled wd_on_output rank_dropout_scale"),
    *ignored(_CONVOLUTIONS, "conv_dim conv_alpha use_tucker use_cp use_conv_cp disable_conv_cp"),
)

PRESET: tuple[Row, ...] = (
    judged("target_module", "training.lora.targets", Kind.ANY),
    judged("module_algo_map", "training.lora.lokr.factors", Kind.ANY),
    *refused(_BY_CLASS, "target_name name_algo_map exclude_name", unless=([], {})),
    *refused("files have the prefix lycoris", "lora_prefix", unless=("lycoris",)),
    *ignored("belongs to names of layers", "use_fnmatch"),
    *ignored(_CONVOLUTIONS, "enable_conv"),
    *ignored(
        "belongs to other models",
        "unet_target_module unet_target_name text_encoder_target_module text_encoder_target_name",
    ),
)
