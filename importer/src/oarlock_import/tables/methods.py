"""Options of other ways to train, and of other model families: what asks for one is refused, what belongs to it is not."""

from __future__ import annotations

from oarlock_import.rows import Row, ignored, refused

_OTHER_MODELS = "belongs to another model family"

METHODS: tuple[Row, ...] = (
    *refused("no features are aligned with those of another network", "crepa_enabled crepa_self_flow urepa_enabled"),
    *refused("no features are aligned with those of another network", "irepa_enabled"),
    *ignored(
        "belongs to crepa_enabled",
        "crepa_block_index crepa_lambda crepa_adjacent_distance crepa_adjacent_tau crepa_encoder crepa_encoder_image_size"
        " crepa_drop_vae_encoder crepa_normalize_by_frames crepa_spatial_align crepa_cutoff_step crepa_decay_steps"
        " crepa_encoder_frames_batch_size crepa_feature_source crepa_lambda_end crepa_normalize_neighbour_sum crepa_power"
        " crepa_scheduler crepa_self_flow_mask_ratio crepa_similarity_ema_decay crepa_similarity_threshold"
        " crepa_teacher_block_index crepa_threshold_mode crepa_use_backbone_features crepa_use_tae crepa_warmup_steps",
    ),
    *ignored(
        "belongs to urepa_enabled",
        "urepa_cutoff_step urepa_decay_steps urepa_encoder_image_size urepa_lambda urepa_lambda_end urepa_manifold_weight"
        " urepa_model urepa_power urepa_scheduler urepa_similarity_ema_decay urepa_similarity_threshold"
        " urepa_threshold_mode urepa_use_tae urepa_warmup_steps",
    ),
    *ignored("belongs to irepa_enabled", "irepa_projector_kernel_size irepa_spatial_norm_alpha"),
    *refused("layers are not trained to agree with each other", "layersync_enabled"),
    *ignored("belongs to layersync_enabled", "layersync_lambda layersync_student_block layersync_teacher_block"),
    *refused("the model has the one head that it was made with", "nextlat_enabled internal_guidance_enabled"),
    *ignored(
        "belongs to nextlat_enabled",
        "nextlat_block_index nextlat_kl_weight nextlat_state_loss nextlat_weight",
    ),
    *ignored("belongs to internal_guidance_enabled", "internal_guidance_block_index internal_guidance_loss_weight"),
    *refused("a step learns from one noise level of each picture, nothing is rolled out", "mixflow_enabled"),
    *refused(
        "a step learns from one noise level of each picture, nothing is rolled out",
        "scheduled_sampling_max_step_offset",
        unless=(0,),
    ),
    *ignored("belongs to mixflow_enabled", "mixflow_gamma"),
    *ignored(
        "belongs to scheduled_sampling_max_step_offset",
        "scheduled_sampling_order scheduled_sampling_prob_end scheduled_sampling_prob_start"
        " scheduled_sampling_probability scheduled_sampling_ramp_shape scheduled_sampling_ramp_steps"
        " scheduled_sampling_reflexflow scheduled_sampling_reflexflow_alpha scheduled_sampling_reflexflow_beta1"
        " scheduled_sampling_reflexflow_beta2 scheduled_sampling_sampler scheduled_sampling_start_step"
        " scheduled_sampling_strategy",
    ),
    *refused("there is no distillation here", "distillation_method", unless=("none",)),
    *ignored("belongs to distillation_method", "distillation_config"),
    *refused("there is no distillation here", "twinflow_enabled"),
    *ignored("belongs to twinflow_enabled", "twinflow_target_step_count"),
    *refused("one noise is drawn for each picture", "xm_enabled"),
    *ignored("belongs to xm_enabled", "xm_block_size xm_candidate_count xm_selection_scope xm_training_target"),
    *refused("the transformer is trained as a whole", "diffusion_blocks_config"),
    *refused("token routing (TREAD) is not here", "tread_config"),
    *refused("boxes are not used", "max_grounding_entities", unless=(0,)),
    *ignored("belongs to max_grounding_entities", "pretrained_grounding_model_name_or_path"),
    *refused("no classifier filters pictures here", "enable_nsfw_check"),
    *ignored(
        "belongs to enable_nsfw_check",
        "delete_nsfw_images nsfw_check_backend_types nsfw_check_min_votes nsfw_check_models nsfw_check_sample_types"
        " nsfw_check_video_frame_count nsfw_check_video_frame_selection nsfw_check_video_min_flagged_frames",
    ),
    *ignored("all families are trained by flow matching already", "diff2flow_enabled diff2flow_loss"),
    *ignored("belongs to Wan 2.2", "wan_force_2_1_time_embedding wan_validation_load_other_stage"),
    *ignored(
        _OTHER_MODELS,
        "sd3_clip_uncond_behaviour sd3_t5_uncond_behaviour hidream_use_load_balancing_loss"
        " hidream_load_balancing_loss_weight ltx_train_mode ltx_i2v_prob ltx_partial_noise_fraction"
        " ltx_protect_first_frame sana_complex_human_instruction"
        " validation_lyrics validation_audio_duration lyrics_embedder_train lyrics_embedder_optimizer"
        " lyrics_embedder_lr lyrics_embedder_lr_scheduler pretrained_unet_model_name_or_path"
        " pretrained_unet_subfolder non_ema_revision refiner_training_invert_schedule"
        " refiner_training_strength sdxl_refiner_uses_full_range pretrained_gemma_model_name_or_path",
    ),
    *ignored(
        _OTHER_MODELS,
        "acestep_lora_target audio_channels audio_duration_interval audio_flow_schedule_shift audio_max_duration_seconds"
        " audio_min_duration_seconds audio_truncation_mode cosmos3_generator_component cosmos3_reasoner_component"
        " deepfloyd_validation_pipeline_mode deepfloyd_validation_stage1_guidance deepfloyd_validation_stage1_model"
        " deepfloyd_validation_stage1_num_inference_steps deepfloyd_validation_stage2_guidance"
        " deepfloyd_validation_stage2_model deepfloyd_validation_stage2_num_inference_steps"
        " deepfloyd_validation_stage3_guidance deepfloyd_validation_stage3_mode deepfloyd_validation_stage3_model"
        " deepfloyd_validation_stage3_noise_level ideogram_auto_json ideogram_fp8_base_upcast"
        " ideogram_load_unconditional_transformer ideogram_prompt_enhancer_head_id ideogram_prompt_upsample"
        " ideogram_schedule_mu ideogram_schedule_std ideogram_uncond_ramtorch ideogram_validation krea2_reference_latents"
        " ltx2_first_frame_conditioning_probability ltx2_intrinsic_conditioning ltx2_mask_conditioning_probability"
        " ltx2_prefix_conditioning_frames ltx2_prefix_conditioning_probability ltx2_reference_spatial_scale_factor"
        " ltx2_reference_temporal_scale_factor ltx2_suffix_conditioning_frames ltx2_suffix_conditioning_probability"
        " ltx2_validation_audio_guidance ltx2_validation_pipeline_mode ltx2_validation_spatial_upsampler_filename"
        " ltx2_validation_spatial_upsampler_model minimax_h3_reference_mode minimax_h3_sparse_attention"
        " minimax_h3_sparse_block_shape minimax_h3_sparse_share_heads minimax_h3_sparse_start_layer"
        " minimax_h3_sparse_video_kv_fraction minimax_h3_target_mode minimax_music_lm_adapter"
        " minimax_music_lm_adapter_strength minimax_music_lm_max_frames minimax_music_lm_precache_mode"
        " minimax_music_train_component pixart_validation_pipeline_mode pixart_validation_stage1_model"
        " pixart_validation_stage2_model sdxl_validation_pipeline_mode sdxl_validation_stage1_model"
        " sdxl_validation_stage2_model validation_audio_only validation_ltx2_video_conditioning",
    ),
)
