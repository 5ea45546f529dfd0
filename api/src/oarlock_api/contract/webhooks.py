"""Words of spec.webhooks that agents act on, too: the receiver's format, and how much a message matters."""

from __future__ import annotations

from enum import StrEnum


class WebhookType(StrEnum):
    """The receiver's format."""

    RAW = "Raw"
    DISCORD = "Discord"


class WebhookLevel(StrEnum):
    """How much a message matters, from little to much."""

    DEBUG = "Debug"
    INFO = "Info"
    WARNING = "Warning"
    ERROR = "Error"
    CRITICAL = "Critical"

    @property
    def weight(self) -> int:
        """Order of importance."""
        return list(WebhookLevel).index(self)
