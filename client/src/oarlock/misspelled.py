"""What fields were meant that the API server does not know: it names one of them, and says nothing else of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_UNKNOWN_FIELD = ".{}: field not declared in schema"
"""How a server-side apply ends for a field that the schema does not have."""


def meant(manifest: Mapping[str, Any], refusal: str) -> list[str]:
    """A sentence for each field of a refused job that there is not, where the server refused it for one of them.

    So fields that only the server's release knows are no mistakes as long as nothing else is.
    """
    from pydantic import ValidationError  # noqa: PLC0415 - only who was refused pays for the models

    from oarlock_api.mistakes import unknown_fields  # noqa: PLC0415
    from oarlock_api.spec import TrainingJobSpec  # noqa: PLC0415

    try:
        TrainingJobSpec.model_validate(manifest.get("spec"), by_alias=True, by_name=False)
    except ValidationError as error:
        unknown = unknown_fields(error, TrainingJobSpec, below="spec")
        if any(_UNKNOWN_FIELD.format(name) in refusal for name, _ in unknown):
            return [sentence for _, sentence in unknown]
    return []
