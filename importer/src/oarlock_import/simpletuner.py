"""The options of one version of SimpleTuner, with their defaults: what is known is never called a misspelling.

tables/simpletuner.json is made from a checkout (`python -m oarlock_import.checkout`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

TABLE: Final = Path(__file__).parent / "tables/simpletuner.json"
_CONTENT: Final[dict[str, Any]] = json.loads(TABLE.read_text(encoding="utf-8"))
VERSION: Final[str] = _CONTENT["version"]
DEFAULTS: Final[dict[str, Any]] = _CONTENT["options"]
"""Every option by each of its names -> its default; None where it has none, or none that is a plain value."""
VARIABLES: Final = frozenset[str](_CONTENT["variables"])
"""Variables of config.env that are read for an option."""
FAMILIES: Final[dict[str, Any]] = _CONTENT["families"]
"""Default flavour, flavours with their repositories, and layers of LoRA of the families that are here."""
