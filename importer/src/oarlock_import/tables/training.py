"""Options of the run: length, batches, precision, memory, average, checkpoints."""

from __future__ import annotations

from oarlock_import.rows import Kind, Row, ignored, judged, mapped, refused

_PLANNER = "Oarlock plans memory itself, and says so in status.resolved.plan"
_OFFLOAD = "weights stay on the GPUs; use more GPUs, engine.offloadOptimizer or activationCheckpointing"
ON_THE_GPUS = "weights and activations stay on the GPUs"
OFFLOADING = ("ramtorch", "enable_group_offload", "gradient_checkpointing_offload_attention")
"""Switches that move what is computed with off the GPUs, and change no number."""

TRAINING: tuple[Row, ...] = (
    judged("max_train_steps", "training.steps", Kind.WHOLE),
    judged("num_train_epochs", "training.epochs", Kind.WHOLE, default=1),
    mapped("train_batch_size", "training.batchSize", Kind.WHOLE, default=4),
    judged("gradient_accumulation_steps", "training.gradientAccumulation", Kind.WHOLE, default=1),
    judged("seed", "training.seed", Kind.WHOLE),
    judged("mixed_precision", "training.precision", Kind.WORD, default="bf16"),
    judged(
        "attention_mechanism",
        "training.attention",
        Kind.TEXT,
        words={
            "diffusers": "SDPA",
            **dict.fromkeys(("native", "native-efficient", "native-flash", "native-math", "xformers"), "SDPA"),
            **dict.fromkeys(("cudnn", "native-cudnn"), "CuDNN"),
            **dict.fromkeys(("flash-attn", "flash-attn-2", "flash-attn-hub", "flash-attn-varlen-hub"), "Flash2"),
            **dict.fromkeys(("flash-attn-3", "flash-attn-3-varlen"), "Flash3"),
            **dict.fromkeys(("flash-attn-3-hub", "flash-attn-3-varlen-hub"), "Flash3"),
        },
    ),
    judged("gradient_checkpointing", "training.activationCheckpointing.mode", Kind.SWITCH, default=True),
    judged("gradient_checkpointing_interval", "training.activationCheckpointing.mode", Kind.WHOLE),
    judged("gradient_checkpointing_segment_stride", "training.activationCheckpointing.percent", Kind.WHOLE),
    judged("use_ema", "training.ema", Kind.SWITCH, default=False),
    judged("ema_decay", "training.ema.decay", Kind.NUMBER, default=0.995),
    judged("ema_device", "training.ema.device", Kind.TEXT, default="cpu", words={"cpu": "CPU", "accelerator": "GPU"}),
    judged("ema_update_interval", "training.ema.everySteps", Kind.WHOLE, default=1),
    mapped(
        "checkpoint_step_interval",
        "training.checkpoint.intervalSteps",
        Kind.WHOLE,
        default=500,
        aliases=("checkpointing_steps",),
    ),
    judged("checkpoints_total_limit", "training.checkpoint.keep", Kind.WHOLE, default=5, aliases=("save_total_limit",)),
    judged("resume_from_checkpoint", "training.checkpoint.resume", Kind.TEXT, default="latest"),
    judged("ema_warmup_steps", "nothing: an average begins with the first step", Kind.WHOLE, default=0),
    *(judged(key, f"nothing: {ON_THE_GPUS}", Kind.SWITCH, default=False) for key in OFFLOADING),
    judged("musubi_blocks_to_swap", f"nothing: {ON_THE_GPUS}", Kind.WHOLE, default=0),
    judged("context_parallel_size", "nothing: sequences are not split over GPUs", Kind.WHOLE),
    judged("output_dir", "output.directory", Kind.TEXT),
    *refused("checkpoints come by steps here; set checkpoint_step_interval", "checkpoint_epoch_interval"),
    *refused(
        "there is one series of checkpoints; a shorter checkpoint_step_interval costs little, saving is asynchronous",
        "checkpointing_rolling_steps checkpoint_step_rolling_interval",
        unless=(0,),
    ),
    *refused("nothing runs after a checkpoint; use a webhook for training.checkpoint", "post_checkpoint_script"),
    *refused("nothing runs after an upload; use a webhook", "post_upload_script"),
    *refused(_OFFLOAD, "offload_param_path optimizer_offload_gradients"),
    *refused(_OFFLOAD, "optimizer_cpu_offload_method", unless=("none", "offload")),
    *refused("FSDP is not here: use DeepSpeed ZeRO, or engine.strategy DDP", "fsdp_enable"),
    *ignored("SimpleTuner itself lets the optimizer decide", "gradient_precision"),
    *refused("what is computed in float32 uses TF32 where the GPU has it", "disable_tf32"),
    *ignored("SimpleTuner itself reads attention_mechanism alone", "enable_xformers_memory_efficient_attention"),
    *ignored("belongs to attention_mechanism sla", "sla_config"),
    *ignored("training is in bfloat16", "pure_bf16"),
    *ignored("TF32 is used where the GPU has it", "allow_tf32"),
    *ignored("belongs to rolling checkpoints", "checkpoints_rolling_total_limit"),
    *ignored("a checkpoint is always written aside and then made valid at once", "checkpointing_use_tempdir"),
    *ignored("broken checkpoints are passed over, and go when there is no room", "delete_invalid_checkpoints"),
    *ignored(
        "storage is checked before the start, and a full one is dealt with",
        "disk_low_threshold disk_low_action disk_low_script disk_low_check_interval",
    ),
    *ignored("a job of steps ends at its last step, one of epochs with its last epoch", "ignore_final_epochs"),
    *ignored("a job of steps ends at its last step, one of epochs with its last epoch", "strict_epoch_limit"),
    *ignored("each parameter that is trained takes part in each step", "find_unused_parameters"),
    *ignored("every rank draws its own noise from the one seed", "seed_for_each_device"),
    *ignored("guards of SimpleTuner; a job has its own", "i_know_what_i_am_doing"),
    *ignored(
        _PLANNER,
        "accelerator_cache_clear_interval set_grads_to_none offload_during_save unet_attention_slice"
        " vae_enable_slicing vae_enable_tiling enable_chunked_feed_forward feed_forward_chunk_size"
        " gradient_checkpointing_backend fuse_optimizer"
        " optimizer_release_gradients low_cpu_mem_usage vae_enable_patch_conv vae_enable_temporal_roll",
    ),
    *ignored(
        "belongs to offloading, of which there is none",
        "group_offload_type group_offload_blocks_per_group group_offload_use_stream"
        " group_offload_to_disk_path group_offload_text_encoder group_offload_vae ramtorch_target_modules"
        " ramtorch_text_encoder ramtorch_vae ramtorch_controlnet ramtorch_disable_extensions ramtorch_disable_sync_hooks"
        " ramtorch_text_encoder_percent ramtorch_transformer_percent musubi_block_swap_device"
        " gradient_checkpointing_offload_pin_memory_max_buckets gradient_checkpointing_offload_prefetch",
    ),
    *ignored(
        "belongs to fsdp_enable",
        "fsdp_version fsdp_reshard_after_forward fsdp_cpu_ram_efficient_loading fsdp_limit_all_gathers"
        " fsdp_cpu_offload fsdp_activation_checkpointing fsdp_state_dict_type fsdp_auto_wrap_policy"
        " fsdp_transformer_layer_cls_to_wrap context_parallel_comm_strategy",
    ),
    *ignored("how the average is computed does not change it", "ema_cpu_only ema_foreach_disable"),
    *ignored("belongs to attention_mechanism sageattention", "sageattention_usage"),
    *ignored("models and data sets lie where the job says", "cache_dir"),
)
