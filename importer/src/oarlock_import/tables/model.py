"""Options of the model and of LoRA."""

from __future__ import annotations

from oarlock_import.rows import Kind, Row, ignored, judged, mapped, refused

OF_PARTS = (
    "pretrained_transformer_model_name_or_path",
    "pretrained_vae_model_name_or_path",
    "pretrained_t5_model_name_or_path",
    "qwen_text_encoder_model_name_or_path",
)
"""Options for parts of the model that lie apart from it."""
ONLY_THE_DIRECTORY = (
    "a job takes all parts of the model from one diffusers directory; make one that holds this part (of a transformer's "
    "single file: oarlock-trainer import-single-file), and name it in pretrained_model_name_or_path"
)
_CONDITIONED = "no training of ControlNet or other conditioned models here"

MODEL: tuple[Row, ...] = (
    mapped(
        "model_family",
        "training.model.family",
        Kind.NAME,
        words={
            "flux": "Flux1",
            "flux2": "Flux2",
            "z_image": "ZImage",
            "sd3": "StableDiffusion3",
            "qwen_image": "QwenImage",
            "wan": "Wan",
        },
    ),
    judged(
        "model_flavour",
        "training.model.flavor",
        Kind.TEXT,
        default="krea",
        aliases=("model_flavor",),
    ),
    judged("pretrained_model_name_or_path", "training.model.path or training.model.hub", Kind.TEXT),
    judged("revision", "training.model.hub.revision", Kind.TEXT),
    mapped("model_type", "training.method", Kind.TEXT, default="full", words={"full": "Full", "lora": "LoRA"}),
    judged("init_lora", "training.initFrom", Kind.TEXT),
    judged("lora_rank", "training.lora.rank", Kind.WHOLE, default=16),
    judged("lora_alpha", "training.lora.alpha", Kind.NUMBER),
    judged("lora_dropout", "training.lora.dropout", Kind.NUMBER, default=0.1),
    judged("flux_lora_target", "training.lora.targets", Kind.TEXT, default="all"),
    judged(
        "base_model_precision",
        "training.lora.quantizeBase",
        Kind.TEXT,
        default="no_change",
        words={
            "no_change": "None",
            "int8-quanto": "Int8",
            "int8-torchao": "Int8",
            "nf4-bnb": "NF4",
            "nf4-torchao": "NF4",
            "fp8-quanto": "FP8",
            "fp8-torchao": "FP8",
        },
    ),
    judged("init_lokr_norm", "nothing: factors begin as LyCORIS begins them", Kind.NUMBER),
    judged("peft_lora_target_modules", "training.lora.targets", Kind.ANY),
    judged("use_dora", "nothing: weights are not taken into direction and length", Kind.SWITCH, default=False),
    judged("base_model_default_dtype", "nothing: bfloat16 stands beside quantized weights", Kind.TEXT, default="bf16"),
    *(judged(key, "nothing: all parts come from one directory", Kind.TEXT) for key in OF_PARTS),
    judged("assistant_lora_strength", "nothing: Oarlock has no assistant adapter", Kind.NUMBER, default=1.0),
    judged("disable_assistant_lora", "nothing: Oarlock has no assistant adapter", Kind.SWITCH, default=False),
    judged(
        "lora_type",
        "training.lora.algorithm",
        Kind.TEXT,
        default="standard",
        words={"standard": "LoRA", "lycoris": "LoKr"},
    ),
    judged(
        "lycoris_config",
        "training.lora, see lycoris_config.json",
        Kind.TEXT,
        default="config/lycoris_config.json",
    ),
    *refused("adapters start as PEFT starts them by default", "lora_init_type", unless=("default",)),
    *refused("only plain LoRA here", "peft_lora_mode", unless=("standard",)),
    *refused(ONLY_THE_DIRECTORY, "pretrained_transformer_subfolder", unless=("transformer",)),
    *refused("the weights are read in the precision that they are stored in", "variant"),
    *refused(_CONDITIONED, "controlnet control controlnet_model_name_or_path controlnet_custom_config"),
    *refused("text encoders are not trained here", "train_text_encoder"),
    *refused("all parameters are trained, biases are not singled out", "layer_freeze_strategy", unless=("none",)),
    *refused(
        "the encoders run in the precision of the model's files",
        "text_encoder_1_precision text_encoder_2_precision text_encoder_3_precision text_encoder_4_precision",
        unless=("no_change",),
    ),
    *refused("all families are trained by flow matching", "prediction_type", unless=("flow_matching",)),
    *refused(
        "the text's length is the flavor's: 512, Schnell 256; of T5 in sd3 256; in qwen_image 1024, edit-v1 512; in wan 512",
        "tokenizer_max_length",
    ),
    *refused("padding stays as the tokenizer makes it", "t5_padding", unless=("unmodified",)),
    *refused("the base model is quantized without its activations", "quantize_activations"),
    *refused(
        "how the base model is quantized is base_model_precision alone; remove it",
        "quantization_config",
        unless=("none",),
    ),
    *ignored(
        "belongs to a base_model_precision of SDNQ",
        "sdnq_compile_mode sdnq_dequantize_fp32 sdnq_group_size sdnq_hadamard_group_size sdnq_modules_dtype_dict"
        " sdnq_modules_quant_config sdnq_modules_to_not_convert sdnq_modules_to_not_use_matmul"
        " sdnq_quantized_matmul_dtype sdnq_svd_rank sdnq_svd_steps sdnq_use_hadamard sdnq_use_quantized_matmul"
        " sdnq_use_static_quantization sdnq_use_stochastic_rounding sdnq_use_svd sdnq_weights_dtype",
    ),
    *refused(
        "the text's features are of the layers that the model was trained with",
        "custom_text_encoder_intermediary_layers",
    ),
    *refused(
        "steps are counted from 0, an average begins with the adapter", "init_lora_step init_lora_ema", unless=(0,)
    ),
    *refused(
        "adapters are written with diffusers' names, which ComfyUI reads too", "lora_format", unless=("diffusers",)
    ),
    *ignored("files of a model hold no remarks", "modelspec_comment"),
    *ignored("no code of a model's repository is run", "trust_remote_code"),
    *ignored("a model's files stay where they lie", "delete_model_after_load"),
    *refused("adapters of sliders are not here", "slider_lora_target"),
    *refused("no assistant adapter here; remove it, or train another flavor", "assistant_lora_path"),
    *ignored("belongs to another peft_lora_mode", "singlora_ramp_up_steps"),
    *ignored("belongs to the assistant adapter", "assistant_lora_weight_name assistant_lora_inference_strength"),
    *ignored("how the weights are quantized does not change what they become", "quantize_via"),
    *ignored("projections are computed together where that is faster", "fuse_qkv_projections fused_qkv_projections"),
    *ignored("belongs to train_text_encoder", "text_encoder_lr text_encoder_limit save_text_encoder"),
    *ignored(
        "belongs to train_text_encoder",
        "freeze_encoder freeze_encoder_before freeze_encoder_after freeze_encoder_strategy",
    ),
    *ignored(
        "the encoders leave the GPU when the captions are encoded", "fully_unload_text_encoder offload_during_startup"
    ),
    *ignored("the VAE is encoded in bfloat16, float16 is not needed", "vae_dtype"),
)
