"""What this image cannot do of what the API knows is refused, so that no setting is ever ignored in silence."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oarlock_api.unbuilt import unbuilt_training_fields
from oarlock_trainer.errors import ConfigurationError

if TYPE_CHECKING:
    from oarlock_api.training import Training

_OPTIMIZER_OPTIONS = frozenset({"eps"})


def refuse_unsupported(training: Training) -> None:
    """Raise ConfigurationError that lists every setting that this image cannot honour."""
    found = unbuilt_training_fields(training)
    found += [
        f"spec.training.optimizer.options.{name}" for name in training.optimizer.options.keys() - _OPTIMIZER_OPTIONS
    ]
    if found:
        raise ConfigurationError(f"this trainer image cannot do what these settings ask for: {', '.join(found)}")
