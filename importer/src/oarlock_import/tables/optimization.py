"""Options of the objective, the optimizer, the schedule and clipping."""

from __future__ import annotations

from oarlock_import.rows import Kind, Row, ignored, judged, mapped, refused

_DIFFUSION = "weights by signal-to-noise ratio have no meaning in flow matching"

OPTIMIZATION: tuple[Row, ...] = (
    judged("flow_schedule_shift", "training.objective.timestepShift", Kind.NUMBER, default=3.0),
    mapped("flow_schedule_auto_shift", "training.objective.autoShift", Kind.SWITCH, default=False),
    judged("flow_use_uniform_schedule", "training.objective.timesteps", Kind.SWITCH, default=False),
    judged("flow_use_beta_schedule", "training.objective.timesteps", Kind.SWITCH, default=False),
    judged("flow_beta_schedule_alpha", "training.objective.betaAlpha", Kind.NUMBER, default=2.0),
    judged("flow_beta_schedule_beta", "training.objective.betaBeta", Kind.NUMBER, default=2.0),
    mapped("flow_sigmoid_scale", "training.objective.sigmoidScale", Kind.NUMBER, default=1.0),
    mapped(
        "flux_guidance_mode",
        "training.objective.guidance.mode",
        Kind.TEXT,
        default="constant",
        words={"constant": "Constant", "random-range": "Random"},
    ),
    judged("flux_guidance_value", "training.objective.guidance.value", Kind.NUMBER, default=1.0),
    judged("flux_guidance_min", "training.objective.guidance.min", Kind.NUMBER, default=0.0),
    judged("flux_guidance_max", "training.objective.guidance.max", Kind.NUMBER, default=4.0),
    mapped(
        "loss_type",
        "training.objective.loss",
        Kind.TEXT,
        default="l2",
        words={"l2": "MSE", "huber": "Huber", "smooth_l1": "SmoothL1"},
    ),
    judged("huber_schedule", "training.objective.loss", Kind.TEXT, default="snr"),
    judged("huber_c", "training.objective.loss", Kind.NUMBER, default=0.1),
    mapped("caption_dropout_probability", "training.objective.captionDropout", Kind.NUMBER, default=0.1),
    mapped("flux_attention_masked_training", "training.objective.attentionMask", Kind.SWITCH, default=False),
    judged("optimizer", "training.optimizer.name", Kind.TEXT, default="adamw_bf16"),
    judged("optimizer_config", "training.optimizer.options and others of training.optimizer", Kind.TEXT),
    judged("optimizer_beta1", "training.optimizer.betas", Kind.NUMBER),
    judged("optimizer_beta2", "training.optimizer.betas", Kind.NUMBER),
    judged("adam_beta1", "training.optimizer.betas, with DeepSpeed", Kind.NUMBER, default=0.9),
    judged("adam_beta2", "training.optimizer.betas, with DeepSpeed", Kind.NUMBER, default=0.999),
    judged("adam_epsilon", "training.optimizer.options.eps, with DeepSpeed", Kind.NUMBER, default=1e-8),
    judged("adam_weight_decay", "training.optimizer.weightDecay, with DeepSpeed", Kind.NUMBER, default=0.01),
    judged("learning_rate", "training.optimizer.learningRate", Kind.NUMBER, default=4e-7),
    judged("lr_scheduler", "training.optimizer.schedule.name", Kind.TEXT, default="constant_with_warmup"),
    judged("lr_warmup_steps", "training.optimizer.schedule.warmupSteps", Kind.WHOLE, default=0),
    judged("lr_power", "training.optimizer.schedule.power", Kind.NUMBER, default=0.8),
    judged("lr_end", "training.optimizer.schedule.endLearningRate", Kind.NUMBER, default=4e-7),
    judged("max_grad_norm", "training.gradientClipping.max", Kind.NUMBER, default=2.0),
    judged("grad_clip_method", "training.gradientClipping.method", Kind.TEXT, default="value"),
    *refused(
        "the noise level is drawn by Sigmoid, Uniform or Beta, within objective.minNoise and maxNoise",
        "flux_fast_schedule flow_custom_timesteps flow_timesteps flow_cubic_schedule_weights",
    ),
    *refused("multiply learning_rate yourself", "lr_scale"),
    *refused("noise is plain Gaussian", "offset_noise"),
    *refused("noise is plain Gaussian", "input_perturbation", unless=(0,)),
    *refused("no part of a picture is masked", "masked_loss_probability", unless=(0, 1)),
    *refused(
        "set objective.minNoise, maxNoise or weighting of the job later", "timestep_bias_strategy", unless=("none",)
    ),
    *ignored("SimpleTuner itself leaves it out with flow matching", "snr_gamma"),
    *refused(_DIFFUSION, "use_soft_min_snr rescale_betas_zero_snr"),
    *ignored("belongs to lr_scale", "lr_scale_sqrt"),
    *ignored("belongs to flow_custom_timesteps", "flow_timesteps_mode"),
    *ignored("belongs to lr_scheduler cosine_with_restarts, which is refused", "lr_num_cycles"),
    *ignored("belongs to offset_noise", "noise_offset noise_offset_probability"),
    *ignored("belongs to input_perturbation", "input_perturbation_steps"),
    *ignored(
        "belongs to timestep_bias_strategy",
        "timestep_bias_begin timestep_bias_end timestep_bias_multiplier timestep_bias_portion",
    ),
    *ignored(
        "flow matching draws noise levels without segments, and has no betas",
        "disable_segmented_timestep_sampling soft_min_snr_sigma_data snr_weight training_scheduler_timestep_spacing",
    ),
    *refused("Prodigy goes on finding the rate until the end", "prodigy_steps", unless=(0,)),
)
