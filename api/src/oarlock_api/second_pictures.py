"""Which models are given references, which are never without, and what a text encoder that sees them asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oarlock_api.data import TextEmbedsMode
from oarlock_api.dataset import ConditioningKind
from oarlock_api.rules import Rule
from oarlock_api.weights import BESIDE, FLAVORS, REFERENCED, SEEING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from oarlock_api.weights import ModelFlavor

_TAKES_REFERENCE = " || ".join(
    f"(self.model.family == '{family}' && "
    f"(has(self.model.flavor) ? self.model.flavor in {[str(flavor) for flavor in flavors]} : "
    f"{str(FLAVORS[family][0] in flavors).lower()}))"
    for family, flavors in REFERENCED.items()
)
"""CEL: whether the model may be given references."""
_REFERENCED = "; ".join(f"{family}: {', '.join(flavors)}" for family, flavors in REFERENCED.items())


def references_fit_the_model() -> tuple[Rule, ...]:
    """Rules of spec.training."""
    return (
        Rule(
            cel=f"{_TAKES_REFERENCE} || "
            "(!self.data.datasets.exists(d, has(d.conditioning) && d.conditioning.kind == 'Reference') && "
            "(!has(self.validation) || !has(self.validation.references)))",
            message="references (datasets[].conditioning.kind: Reference, validation.references) are for models that are "
            f"given such ({_REFERENCED}): set model.family and flavor to one of them, or remove the references",
            holds=lambda training: (
                training.model.takes_reference
                or (
                    all(not one.has(ConditioningKind.REFERENCE) for one in training.data.datasets)
                    and (training.validation is None or training.validation.references is None)
                )
            ),
        ),
        _never_without(BESIDE, "are given a reference with each picture"),
        _never_without(SEEING, "reads each caption beside its reference"),
        Rule(
            cel=f"{_is_none_of(SEEING)} || self.data.textEmbedsMode != 'OnTheFly'",
            message=f"{', '.join(SEEING)} reads each caption beside its reference, which is done before training: leave "
            "data.textEmbedsMode at Cache",
            holds=lambda training: (
                training.model.flavor not in SEEING or training.data.text_embeds_mode is not TextEmbedsMode.ON_THE_FLY
            ),
        ),
    )


def _never_without(flavors: Sequence[ModelFlavor], because: str) -> Rule:
    def holds(training: Any) -> bool:
        return training.model.flavor not in flavors or (
            all(one.has(ConditioningKind.REFERENCE) for one in training.data.datasets)
            and (training.validation is None or training.validation.references is not None)
        )

    return Rule(
        cel=f"{_is_none_of(flavors)} || "
        "(self.data.datasets.all(d, has(d.conditioning) && d.conditioning.kind == 'Reference') && "
        "(!has(self.validation) || has(self.validation.references)))",
        message=f"{', '.join(flavors)} {because}: set conditioning.kind: Reference for each of data.datasets, and "
        "validation.references where there is a validation",
        holds=holds,
    )


def _is_none_of(flavors: Sequence[ModelFlavor]) -> str:
    return f"!has(self.model.flavor) || !(self.model.flavor in {[str(flavor) for flavor in flavors]})"
