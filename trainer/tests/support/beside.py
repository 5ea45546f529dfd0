"""Jobs of FLUX.1 whose flavor is given a reference with each picture, in channels beside the noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from gang import Gang


def data(gang: Gang, references: Path, cache: Path, **dataset: Any) -> dict[str, Any]:
    """The gang's pictures, flipped at times, with these references; `dataset`: more of the data set's."""
    one = {
        "name": "pairs", "source": {"path": str(gang.pictures)}, "randomFlip": True,
        "conditioning": {"kind": "Reference", "source": {"path": str(references)}}, **dataset,
    }  # fmt: skip
    return {
        "textEmbeds": {"path": str(gang.cache / "text")}, "imageEmbeds": {"path": str(cache)}, "datasets": [one],
    }  # fmt: skip


def training(
    gang: Gang, flavor: str, model: Path, found: dict[str, Any], drawn: Path, **changes: Any
) -> dict[str, Any]:
    """On such data, with a picture of `boat` at step 4, whose reference lies in `drawn`."""
    pictures = {
        "everySteps": 4, "prompts": [{"name": "boat", "prompt": "a boat"}], "resolutions": ["64x48"],
        "inferenceSteps": 2, "references": {"path": str(drawn)},
    }  # fmt: skip
    return gang.training(
        model={"family": "Flux1", "flavor": flavor, "path": str(model)}, data=found, validation=pictures, **changes
    )
