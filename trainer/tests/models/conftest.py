"""What the suites of all families share: each family's tiny model, opened once for a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tiny_models import made_tiny

from oarlock_trainer.models.families import FAMILIES

if TYPE_CHECKING:
    from tiny_pipelines import Tiny


@pytest.fixture(scope="session", params=[*(family.slug for family in FAMILIES.values()), "flux2-dev"])
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Of each family, and of a flavor with other encoders. Nobody changes it, but for gradients."""
    from family_pipelines import RECORDS  # noqa: PLC0415 - brings torch
    from tiny_pipelines import Tiny  # noqa: PLC0415 - brings torch

    record, slug = RECORDS[request.param], str(request.param)
    if not record.options:
        return Tiny(record, made_tiny(slug))
    folder = tmp_path_factory.mktemp("tiny") / slug
    record.tiny.write(folder, **record.options)
    return Tiny(record, folder)
