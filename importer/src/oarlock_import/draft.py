"""The job while it is being put together: fields by their path below spec."""

from __future__ import annotations

from typing import Any


class Draft:
    """A nested manifest that is written field by field."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] = {}

    def put(self, path: str, value: Any) -> None:
        """Set one field, such as training.optimizer.learningRate.

        Raises ValueError where it already has another value.
        """
        *groups, name = path.split(".")
        at = self.spec
        for group in groups:
            at = at.setdefault(group, {})
        if name in at and at[name] != value:
            raise ValueError(f"{path} is set twice, to {at[name]!r} and {value!r}")
        at[name] = value

    def get(self, path: str) -> Any:
        """A field's value; None if it is not set."""
        at: Any = self.spec
        for name in path.split("."):
            if not isinstance(at, dict) or name not in at:
                return None
            at = at[name]
        return at
