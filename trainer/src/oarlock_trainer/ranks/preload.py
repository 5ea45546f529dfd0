"""Everything heavy, imported once per node: the agent's spawner calls this and then forks the ranks.

After it the process has one thread, no CUDA context and no process group, so that a fork is safe. What makes imports
slow is known and measured (`python -X importtime`): torch, its compiler front end (left out where nothing is compiled),
DeepSpeed, and diffusers' one class.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.environment import CONFIG_PATH, SIMULATE_GPUS, Variable
from oarlock_api.contract.job_file import parse_job_file
from oarlock_api.contract.wire import WireError
from oarlock_api.weights import AdapterAlgorithm, Method
from oarlock_trainer.hub.hub import OFFLINE_BY_DEFAULT
from oarlock_trainer.runtime.left_out import left_out
from oarlock_trainer.runtime.uncompiled import import_torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from oarlock_trainer.models.family import Family

_IMPORTED_LATE = (
    "deepspeed.comm.mori",
    "deepspeed.module_inject.auto_ep_layer",
    "deepspeed.runtime.zero.muon.original_muon",
    "deepspeed.runtime.zero.muon.muon_optimizer",
    "numpy.random",
    "torch.profiler._cupti_monitor",
    "torch.utils.serialization.config",
)
"""What DeepSpeed and torch import in the middle of initialize() and the first step: every rank would pay for it."""

_IMPORTED_LATE_BY_ENCODERS = (
    "PIL.ImageChops",
    "PIL.ImageSequence",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "oarlock_trainer.preprocess.latents",
    "oarlock_trainer.preprocess.text",
)


def import_everything(*, encoders: bool | None = None) -> None:
    """Import what a training rank needs. `encoders` None = only where the output has no published table yet."""
    settle_environment()
    # Imports make millions of objects that live on: every pass of the collector over them is wasted, a fifth of the time.
    gc.disable()
    try:
        _import(encoders=encoders)
    finally:
        gc.freeze()  # they are never garbage: else the first collection after the fork would touch and copy all of them
        gc.enable()


def _import(*, encoders: bool | None) -> None:
    import numpy as np  # noqa: F401, PLC0415

    torch = import_torch()
    importlib.import_module("torch.distributed")

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    with left_out("mlflow"):  # for an autotuner that nobody calls
        import deepspeed  # noqa: F401, PLC0415

    from oarlock_trainer.engine.deepspeed import skip_operator_probes  # noqa: PLC0415
    from oarlock_trainer.loop import train  # noqa: F401, PLC0415
    from oarlock_trainer.models.classes import imported  # noqa: PLC0415
    from oarlock_trainer.preprocess.pipeline import table_path  # noqa: PLC0415

    families = _families()
    for family in families:
        imported(family.transformer)
    skip_operator_probes()
    if _needs_peft():
        from oarlock_trainer.models.adapters.low_rank import import_peft  # noqa: PLC0415

        import_peft()
    for name in _IMPORTED_LATE:
        with contextlib.suppress(ImportError):  # another release may have moved it: then it is merely imported later
            importlib.import_module(name)
    if encoders is None:
        output = os.environ.get(Variable.OUTPUT_DIR)
        encoders = output is None or not table_path(Path(output)).exists()
    if encoders:
        import_encoders(families)


def _training() -> Mapping[str, Any]:
    """Of the job that this process is for; empty where its file can't be read, which the ranks tell of."""
    try:
        file = parse_job_file(Path(os.environ.get(Variable.CONFIG, CONFIG_PATH)).read_text(encoding="utf-8"))
    except (OSError, WireError):
        return {}
    return file.whole_training


def _families() -> list[Family]:
    """That of the job's model; all of them where none is named."""
    from oarlock_trainer.models.families import FAMILIES  # noqa: PLC0415

    named = (_training().get("model") or {}).get("family")
    return [family for key, family in FAMILIES.items() if named in {None, key}]


def _needs_peft() -> bool:
    """Whether the job trains LoRA's own adapters."""
    training = _training()
    algorithm = (training.get("lora") or {}).get("algorithm", AdapterAlgorithm.LORA)
    return bool(training.get("method") == Method.LORA and algorithm == AdapterAlgorithm.LORA)


def import_encoders(families: Sequence[Family] | None = None) -> None:
    """Import what only encoding needs, for these families or for the job's."""
    families = _families() if families is None else families
    _import_text_encoders(families)

    from oarlock_trainer.models import encoders  # noqa: F401, PLC0415
    from oarlock_trainer.models.classes import imported  # noqa: PLC0415

    for family in families:
        imported(family.autoencoder)
    for name in _IMPORTED_LATE_BY_ENCODERS:
        importlib.import_module(name)
    with contextlib.suppress(ImportError, AttributeError):  # a cache of a thousand compiled patterns, filled once
        importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("t5")


def _import_text_encoders(families: Sequence[Family]) -> None:
    """Import them without scipy and accelerate, which transformers takes along for losses that nobody computes here."""
    import transformers  # noqa: PLC0415
    import transformers.utils as switches  # noqa: PLC0415

    kept = {name: getattr(switches, name) for name in ("is_scipy_available", "is_accelerate_available")}
    for name in kept:
        setattr(switches, name, lambda *_: False)
    try:
        for name in dict.fromkeys(name for family in families for name in family.text_classes):
            getattr(transformers, name)
    finally:
        for name, switch in kept.items():
            setattr(switches, name, switch)


def settle_environment() -> None:
    """Set what must stand in the environment before torch is imported, unless somebody chose otherwise.

    One compute thread per rank on the CPU: ranks share the cores. Without compile, TorchDynamo only costs time.
    """
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    # Arrow's allocator would start a thread at import, and a process with threads cannot be forked safely.
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if "PYTORCH_CUDA_ALLOC_CONF" not in os.environ:  # its older name
        # Batches of many shapes, and plans that fill a GPU: memory freed by one shape must serve the next.
        os.environ.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
    if "HF_HUB_OFFLINE" not in os.environ:
        os.environ[OFFLINE_BY_DEFAULT] = "1"
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DISABLE_TELEMETRY"):
        os.environ.setdefault(name, "1")
    if int(os.environ.get(Variable.GPUS_PER_NODE, "0") or 0) == 0 or os.environ.get(SIMULATE_GPUS) == "1":
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
