"""Options that say how SimpleTuner itself is started, and variables of its environment."""

from __future__ import annotations

from oarlock_import.rows import Kind, Row, ignored, judged, refused

LAUNCH = "accelerate's own words for it"
"""Where an option goes that only hands a setting to accelerate."""
FAMILIES = (
    "refiner_training stable_diffusion_3 pixart_sigma stable_diffusion_legacy kolors hunyuan_dit deepfloyd smoldit sana"
    " flux"
)
"""Switches of other families in an older config.env, and FLUX=false, which asks for none of them."""
_POD = "the operator makes the pods of a gang and tells each its rank and the address of rank 0"
_OTHER_MODELS = "belongs to another model family"

MACHINE: tuple[Row, ...] = (
    judged("accelerate_config", "nodes, gpusPerNode, training.engine, training.compile", Kind.TEXT),
    judged("accelerate_extra_args", LAUNCH, Kind.TEXT),
    judged("num_processes", "nodes * gpusPerNode", Kind.WHOLE),
    judged("num_machines", "nodes", Kind.WHOLE),
    judged("dynamo_backend", "training.compile.mode", Kind.WORD),
    judged("dynamo_mode", "training.compile.mode", Kind.WORD),
    judged("dynamo_fullgraph", "training.compile.fullGraph", Kind.SWITCH),
    judged("dynamo_dynamic", "training.compile.dynamic", Kind.SWITCH),
    judged("dynamo_use_regional_compilation", "nothing: blocks are always compiled one by one", Kind.SWITCH),
    judged("deepspeed_config", "training.engine", Kind.ANY),
    judged("main_process_port", "pod.ports.rendezvous", Kind.WHOLE),
    *ignored(_POD, "main_process_ip machine_rank same_network local_rank rdzv_backend"),
    *ignored(
        "SimpleTuner's own program and interface",
        "configs_dir help merge_environment_config config_path config_backend config_type env"
        " simpletuner_environment simpletuner_env simpletuner_config_backend simpletuner_log_level venv_path"
        " disable_updates disable_ld_override tokenizers_parallelism python_path",
    ),
    *ignored(
        "set it in pod.env of the job if you need it",
        "hf_endpoint hf_home hf_hub_enable_hf_transfer pytorch_cuda_alloc_conf nccl_debug nccl_socket_ifname"
        " simpletuner_job_id",
    ),
    *ignored("the pod has the GPUs that gpusPerNode asks for", "cuda_visible_devices"),
    *ignored(
        "a secret: put it into a Secret, and name that in the job",
        "hf_token hugging_face_hub_token huggingface_hub_token wandb_api_key aws_access_key_id"
        " aws_secret_access_key aws_session_token comet_api_key",
    ),
    *ignored(
        "webhooks verify certificates; SSL_CERT_FILE in pod.env names an authority of your own",
        "simpletuner_ssl_no_verify",
    ),
    *ignored(
        _OTHER_MODELS,
        "sd3_clip_uncond_behaviour sd3_t5_uncond_behaviour hidream_use_load_balancing_loss"
        " hidream_load_balancing_loss_weight ltx_train_mode ltx_i2v_prob ltx_partial_noise_fraction"
        " ltx_protect_first_frame sana_complex_human_instruction"
        " validation_lyrics validation_audio_duration lyrics_embedder_train lyrics_embedder_optimizer"
        " lyrics_embedder_lr lyrics_embedder_lr_scheduler pretrained_unet_model_name_or_path"
        " pretrained_unet_subfolder non_ema_revision refiner_training_invert_schedule"
        " refiner_training_strength sdxl_refiner_uses_full_range crepa_block_index crepa_lambda"
        " crepa_adjacent_distance crepa_adjacent_tau crepa_encoder crepa_encoder_image_size"
        " crepa_drop_vae_encoder crepa_normalize_by_frames crepa_spatial_align",
    ),
    *refused(
        "a switch of older versions: remove it, and write model_family flux (FLUX=true in config.env), flux2, z-image, "
        "sd3, qwen_image or wan",
        FAMILIES,
    ),
)
