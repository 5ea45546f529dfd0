"""Options of pictures, trackers, the hub and webhooks: they change nothing that is trained."""

from __future__ import annotations

from oarlock_import.rows import Kind, Row, ignored, judged, refused

_PICTURES = "one picture is made of each prompt, size and validation"

REPORTING: tuple[Row, ...] = (
    judged("validation_disable", "training.validation", Kind.SWITCH, default=False),
    judged(
        "validation_step_interval",
        "training.validation.everySteps",
        Kind.WHOLE,
        default=100,
        aliases=("validation_steps",),
    ),
    judged("validation_prompt", "training.validation.prompts", Kind.TEXT),
    judged("user_prompt_library", "training.validation.promptsFrom", Kind.TEXT),
    judged("validation_guidance", "training.validation.guidance", Kind.NUMBER, default=7.5),
    judged("validation_num_inference_steps", "training.validation.inferenceSteps", Kind.WHOLE, default=30),
    judged("validation_resolution", "training.validation.resolutions", Kind.TEXT, default="256"),
    judged("validation_seed", "training.validation.seed", Kind.WHOLE),
    judged("validation_num_video_frames", "training.validation.frames", Kind.WHOLE),
    judged("report_to", "training.tracking", Kind.TEXT),
    judged("tracker_project_name", "training.tracking.project", Kind.TEXT, default="simpletuner"),
    judged("tracker_run_name", "training.tracking.run", Kind.TEXT, default="simpletuner-testing"),
    judged("push_to_hub", "training.publish", Kind.SWITCH, default=False),
    judged("hub_model_id", "training.publish.hub.repo", Kind.TEXT),
    judged("push_checkpoints_to_hub", "training.publish", Kind.SWITCH, default=False),
    judged("model_card_private", "training.publish.hub.private", Kind.SWITCH, default=True),
    judged("validation_guidance_skip_layers", "nothing: layers are not skipped", Kind.ANY),
    judged("webhook_config", "webhooks", Kind.ANY),
    *refused("pictures come by steps; set validation_step_interval", "validation_epoch_interval"),
    *refused("write the prompts into user_prompt_library", "validation_prompt_library"),
    *refused(_PICTURES, "num_validation_images", unless=(1,)),
    *refused(_PICTURES, "validation_randomize validation_using_datasets validation_input"),
    *refused(
        "two passes are made with validation.negativePrompt, whose scale is validation.guidance: set both in the job",
        "validation_guidance_real",
        unless=(0, 1),
    ),
    *refused("pictures are made by the model's own scheduler", "validation_noise_scheduler", unless=("euler",)),
    *refused(
        "pictures are made by the job itself",
        "validation_method validation_external_script",
        unless=("simpletuner-local",),
    ),
    *refused(
        "no pictures are scored; the loss on data sets of dataset_type eval is", "evaluation_type", unless=("none",)
    ),
    *refused("previews are not streamed", "validation_preview"),
    *refused("pictures are not marked", "enable_watermark"),
    *refused("set training.publish to an S3 prefix, or training.checkpoint.upload, in the job", "publishing_config"),
    *ignored(
        "SimpleTuner uses it only where guidance is two passes; of FLUX.1 with validation_guidance_real above 1",
        "validation_negative_prompt validation_no_cfg_until_timestep validation_guidance_rescale"
        " validation_disable_unconditional",
    ),
    *ignored(
        "belongs to what is refused or absent",
        "validation_guidance_skip_layers_start validation_guidance_skip_layers_stop"
        " validation_guidance_skip_scale validation_preview_steps validation_external_background"
        " validation_stitch_input_location validation_lycoris_strength validation_adapter_path"
        " validation_adapter_name validation_adapter_strength validation_adapter_mode validation_adapter_config"
        " validation_internal_guidance_scale",
    ),
    *ignored(
        "how pictures are made fast does not change them",
        "validation_torch_compile validation_torch_compile_mode validation_seed_source validation_multigpu"
        " inference_scheduler_timestep_spacing disable_benchmark validation_on_startup",
    ),
    *ignored(
        "pictures are made from the weights themselves; task: Evaluate judges the average where there is one",
        "ema_validation",
    ),
    *ignored("pictures are kept as PNG", "validation_image_format validation_image_quality"),
    *ignored("pictures are drawn from the first interval on", "validate_after_step validate_after_epoch"),
    *ignored("belongs to report_to custom-tracker", "custom_tracker"),
    *ignored("videos are drawn at their model's own rate", "framerate"),
    *ignored("belongs to evaluation_type", "num_eval_images pretrained_evaluation_model_name_or_path"),
    *ignored(
        "data sets for evaluation are measured after each checkpoint",
        "eval_steps_interval eval_epoch_interval eval_timesteps eval_dataset_pooling eval_loss_disable",
    ),
    *ignored(
        "the model's page on the hub is yours to write",
        "model_card_safe_for_work model_card_note push_to_hub_background",
    ),
    *ignored("trackers write below the output directory", "logging_dir"),
    *ignored("trackers show pictures in their own way", "tracker_image_layout"),
    *ignored("webhooks are sent in the background, progress once a minute", "webhook_reporting_interval"),
)
