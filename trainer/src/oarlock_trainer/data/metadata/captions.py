"""The text of a picture, by the dataset's strategy."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from oarlock_api.dataset import Captions, CaptionStrategy

if TYPE_CHECKING:
    from oarlock_trainer.data.sources.local import LocalSource


def caption(settings: Captions, source: LocalSource, name: str) -> str | None:
    """Caption of a picture, or None where it has none."""
    if settings.strategy is CaptionStrategy.FIXED:
        text = settings.text
    elif settings.strategy is CaptionStrategy.FILENAME:
        text = re.sub(r"[_\-]+", " ", PurePosixPath(name).stem)
    else:
        text = source.text(name)
    for pattern in settings.filters:
        text = re.sub(pattern, "", text or "")
    text = " ".join((text or "").split())
    if not text:
        return None
    return f"{settings.prepend.strip()} {text}" if settings.prepend else text
