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
    *ignored("kept by SimpleTuner's web interface, and read by nothing else", "__active_tab__ __disabled_fields__"),
    *ignored("kept by SimpleTuner's web interface, and read by nothing else", "ez_model_type"),
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
    *refused(
        "a switch of older versions: remove it, and write model_family flux (FLUX=true in config.env), flux2, z_image, "
        "sd3, qwen_image or wan",
        FAMILIES,
    ),
)
