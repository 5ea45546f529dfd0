"""What the one who starts the server chooses."""

from __future__ import annotations

from dataclasses import dataclass

from oarlock.web.mounts import Mount

OPERATOR_NAMESPACE = "oarlock"
"""The one of docs/install.md."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How the page is served."""

    namespace: str | None = None
    """Whose jobs `/` leads to; None: those of all namespaces."""
    hosts: frozenset[str] = frozenset()
    """Names besides those of the loopback that a request's Host header may have, without a port."""
    actions: bool = False
    """Whether jobs can be suspended, resumed, saved, stopped, and nodes uncordoned."""
    outputs: tuple[Mount, ...] = ()
    """Where the outputs of jobs are mounted."""
    operator_namespace: str = OPERATOR_NAMESPACE
    """Where the operator and its ledger of cordons are."""
