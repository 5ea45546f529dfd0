"""Keys of accelerate's configuration file and of DeepSpeed's configuration."""

from __future__ import annotations

from oarlock_import.rows import Kind, Row, ignored, judged, mapped, refused

_POD = "the operator makes the pods of a gang and tells each its rank and the address of rank 0"
_ELSEWHERE = "belongs to hardware or plugins that a job does not use"
_ZERO = "Oarlock writes DeepSpeed's configuration; this changes speed or memory, not numbers"

ACCELERATE: tuple[Row, ...] = (
    mapped("num_machines", "nodes", Kind.WHOLE, default=1),
    judged("num_processes", "gpusPerNode", Kind.WHOLE, default=1),
    judged("use_cpu", "gpusPerNode", Kind.SWITCH, default=False),
    judged("distributed_type", "training.engine.strategy", Kind.WORD),
    judged("mixed_precision", "training.precision", Kind.WORD),
    judged("gradient_accumulation_steps", "training.gradientAccumulation", Kind.WHOLE),
    mapped("main_process_port", "pod.ports.rendezvous", Kind.WHOLE),
    judged("deepspeed_config", "training.engine", Kind.ANY),
    judged("dynamo_config", "training.compile", Kind.ANY),
    *refused("cloud services are not what a job runs on", "compute_environment", unless=("local_machine",)),
    *refused("FSDP is not here: use DeepSpeed ZeRO", "fsdp_config", unless=({},)),
    *refused("only data parallelism is here", "megatron_lm_config parallelism_config tp_config", unless=({},)),
    *refused("set mixed_precision; the kernels of FP8 are Oarlock's choice", "fp8_config fp16_config", unless=({},)),
    *refused("only NVIDIA GPUs are here", "tpu_use_cluster tpu_use_sudo mpirun_config ipex_config", unless=({},)),
    *ignored(
        _POD,
        "machine_rank main_process_ip rdzv_backend rdzv_conf same_network gpu_ids multi_gpu"
        " main_training_function enable_cpu_affinity num_cpu_threads_per_process module no_python"
        " monitor_interval max_restarts",
    ),
    *ignored(_ELSEWHERE, "downcast_bf16 tpu_env tpu_name tpu_zone commands command_file"),
    *ignored("logs of accelerate", "debug quiet log_dir"),
)

DYNAMO: tuple[Row, ...] = (
    judged("dynamo_backend", "training.compile.mode", Kind.WORD, default="no"),
    judged("dynamo_mode", "training.compile.mode", Kind.WORD, default="default"),
    judged("dynamo_use_dynamic", "training.compile.dynamic", Kind.SWITCH, default=False),
    judged("dynamo_use_fullgraph", "training.compile.fullGraph", Kind.SWITCH, default=False),
    *ignored("blocks are always compiled one by one", "dynamo_use_regional_compilation"),
)

DEEPSPEED: tuple[Row, ...] = (
    judged("zero_optimization.stage", "training.engine.zeroStage", Kind.WHOLE, default=2, aliases=("zero_stage",)),
    judged(
        "zero_optimization.offload_optimizer.device",
        "training.engine.offloadOptimizer",
        Kind.TEXT,
        default="none",
        words={"none": "None", "cpu": "CPU"},
        aliases=("offload_optimizer_device",),
    ),
    judged("gradient_clipping", "training.gradientClipping", Kind.TEXT),
    judged("gradient_accumulation_steps", "training.gradientAccumulation", Kind.TEXT),
    judged("zero_optimization.overlap_comm", "training.engine.overlapCommunication", Kind.SWITCH),
    judged("zero_optimization.reduce_bucket_size", "training.engine.bucketElements", Kind.TEXT),
    judged("optimizer.type", "training.optimizer.name", Kind.TEXT, default="AdamW"),
    judged("optimizer.params.lr", "training.optimizer.learningRate", Kind.TEXT),
    judged("optimizer.params.betas", "training.optimizer.betas", Kind.ANY),
    judged("optimizer.params.eps", "training.optimizer.options.eps", Kind.TEXT),
    judged("optimizer.params.weight_decay", "training.optimizer.weightDecay", Kind.TEXT),
    judged("scheduler.type", "training.optimizer.schedule.name", Kind.TEXT, default="WarmupLR"),
    judged("scheduler.params.warmup_num_steps", "training.optimizer.schedule.warmupSteps", Kind.TEXT),
    judged("scheduler.params.warmup_type", "training.optimizer.schedule", Kind.TEXT, default="log"),
    *refused("warm-up starts at 0", "scheduler.params.warmup_min_lr", unless=(0, "auto")),
    *refused("write it as learning_rate", "scheduler.params.warmup_max_lr", unless=("auto",)),
    *refused(
        "weights stay on the GPUs: use more GPUs",
        "zero_optimization.offload_param.device offload_param_device",
        unless=("none",),
    ),
    *refused(
        "the optimizer's state lies on GPUs or in memory, not on NVMe",
        "offload_optimizer_nvme_path zero_optimization.offload_optimizer.nvme_path",
        unless=("none",),
    ),
    *refused("training is in bfloat16", "fp16.enabled", unless=("auto",)),
    *refused("AdamW decouples weight decay", "optimizer.params.adam_w_mode", unless=(True,)),
    *refused(
        "only ZeRO's communication is here",
        "communication_data_type sparse_attention compression_training deepspeed_moe_layer_cls_names",
    ),
    *ignored("training is in bfloat16", "bf16.enabled"),
    *ignored("a job's total is training.steps", "scheduler.params.total_num_steps"),
    *ignored(
        "SimpleTuner writes train_batch_size over it, and Oarlock its own",
        "train_micro_batch_size_per_gpu train_batch_size",
    ),
    *ignored(
        _ZERO,
        "zero_optimization.contiguous_gradients zero_optimization.reduce_scatter"
        " zero_optimization.allgather_partitions zero_optimization.allgather_bucket_size"
        " zero_optimization.round_robin_gradients zero_optimization.sub_group_size"
        " zero_optimization.offload_optimizer.pin_memory zero_optimization.offload_param.pin_memory"
        " zero_optimization.stage3_prefetch_bucket_size zero_optimization.stage3_param_persistence_threshold"
        " zero_optimization.stage3_max_live_parameters zero_optimization.stage3_max_reuse_distance"
        " zero_optimization.stage3_gather_16bit_weights_on_model_save zero3_init_flag zero3_save_16bit_model"
        " zero_allow_untested_optimizer zero_force_ds_cpu_optimizer activation_checkpointing",
    ),
    *ignored(
        "belongs to offloading of weights that is not asked for",
        "offload_param_nvme_path zero_optimization.offload_param.nvme_path",
    ),
    *ignored(
        _POD,
        "deepspeed_multinode_launcher deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter",
    ),
    *ignored(
        "logs of DeepSpeed",
        "steps_per_print wall_clock_breakdown comms_logger flops_profiler tensorboard wandb csv_monitor dump_state",
    ),
)
