"""What this image can do of what the API knows. The rest is refused, so that no setting is ever ignored in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_trainer.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from oarlock_api.training import Training

ONLY: dict[str, tuple[str, ...]] = {
    "task": ("Train", "Preprocess"),
    "method": ("Full",),
    "precision": ("BF16",),
    "attention": ("Auto", "SDPA"),
    "optimizer.name": ("AdamW",),
    "gradientClipping.method": ("Norm", "None"),
    "engine.strategy": ("Auto", "DeepSpeed"),
    "engine.zeroStage": ("1", "2"),
    "engine.offloadOptimizer": ("None",),
    "compile.mode": ("None",),
    "activationCheckpointing.mode": ("Auto", "None", "Full"),
    "data.compression": ("None",),
    "data.datasets[].role": ("Train",),
    "data.datasets[].captions.strategy": ("TextFile", "Filename", "Fixed"),
    "data.datasets[].imageEmbeds.mode": ("Cache",),
}
"""Paths below spec.training whose listed values alone work."""

NOT_YET: tuple[str, ...] = (
    "model.s3",
    "model.hub",
    "initFrom.s3",
    "lora",
    "ema",
    "checkpoint.upload",
    "validation",
    "tracking",
    "publish",
    "data.textEmbeds.s3",
    "data.imageEmbeds.s3",
    "data.tuning.workers",
    "data.tuning.s3MaxConnections",
    "data.datasets[].source.s3",
    "data.datasets[].metadata.parquet",
    "data.datasets[].imageEmbeds.location.s3",
    "data.datasets[].size.maximum",
    "data.datasets[].size.downsampleTo",
    "data.datasets[].probability",
    "data.datasets[].startStep",
    "data.datasets[].endStep",
)
"""Paths below spec.training that must not be set."""

_OPTIMIZER_OPTIONS = frozenset({"eps"})


def refuse_unsupported(training: Training) -> None:
    """Raise ConfigurationError that lists every setting that this image cannot honour."""
    manifest = training.to_manifest()
    found = [f"training.{path}" for path in NOT_YET if any(_is_set(value) for value in _values(manifest, path))]
    found += [
        f"training.{path}: {value} (this image knows {', '.join(allowed)})"
        for path, allowed in ONLY.items()
        for value in _values(manifest, path)
        if str(value) not in allowed
    ]
    found += [
        f"training.optimizer.options.{name}" for name in training.optimizer.options if name not in _OPTIMIZER_OPTIONS
    ]
    if found:
        raise ConfigurationError(f"this trainer image cannot do what these settings ask for: {'; '.join(found)}")


def _is_set(value: Any) -> bool:
    return value is not None and value not in ((), [], {})


def _values(value: Any, path: str) -> Iterator[Any]:
    head, _, rest = path.partition(".")
    name = head.removesuffix("[]")
    if not isinstance(value, dict) or name not in value:
        return
    for item in value[name] if head.endswith("[]") else [value[name]]:
        if rest:
            yield from _values(item, rest)
        else:
            yield item
