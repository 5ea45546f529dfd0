"""A rank's hold on the process that speaks with a model hub (process.py): one process for each thing that is asked."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oarlock_api.contract.secrets import secret_variable
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError
from oarlock_trainer.runtime.parent import pipe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from oarlock_api.secret_refs import SecretKeyRef

OFFLINE_BY_DEFAULT = "OARLOCK_OFFLINE_BY_DEFAULT"
"""Variable that is set where nobody but us told the libraries to stay offline: a model that the job itself has on a hub
may be fetched then."""
_TRUE = ("1", "ON", "YES", "TRUE")
_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Hub:
    """The hub that `environment`, a container's, leads to: its HF_ENDPOINT, its proxies, its HF_HUB_OFFLINE."""

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def cache(self) -> Path | None:
        """Where the container says that models of hubs are cached; None where it does not."""
        home = self.environment.get("HF_HOME")
        found = self.environment.get("HF_HUB_CACHE") or (home and f"{home}/hub")
        return Path(found) if found else None

    @property
    def is_offline(self) -> bool:
        """Whether the container is to use its cache alone."""
        own = not self.environment.get(OFFLINE_BY_DEFAULT)
        return own and self.environment.get("HF_HUB_OFFLINE", "").upper() in _TRUE

    def ask(
        self, order: Mapping[str, Any], *, token: SecretKeyRef | None, named: str, go_on: Callable[[], None]
    ) -> Any:
        """What process.py answers to an order. `go_on` is called while waiting, and may raise to stop.

        `token`: without one, HF_TOKEN of the container, if any. Raises ConfigurationError, which begins with `named`, the
        job's field, and StorageError. To be called from the main thread, with which the process dies.
        """
        process = subprocess.Popen(
            [sys.executable, "-m", "oarlock_trainer.hub.process", "--parent", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment(token, named),
        )
        try:
            said = _spoken(process, json.dumps(order), go_on)
        finally:
            process.kill()
            process.communicate()
        if "refused" in said:
            raise ConfigurationError(f"{named}: {said['refused']}")
        if "failed" in said:
            raise StorageError(f"{named}: {said['failed']}")
        return said["result"]

    def _environment(self, token: SecretKeyRef | None, named: str) -> dict[str, str]:
        environment = dict(self.environment)
        if environment.pop(OFFLINE_BY_DEFAULT, ""):
            environment.pop("HF_HUB_OFFLINE", None)
            environment.pop("TRANSFORMERS_OFFLINE", None)  # which the hub's library obeys too
        environment["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
        if token:
            value = environment.get(secret_variable(token.name, token.key), "").strip()
            if not value and not environment.get("HF_TOKEN"):
                raise ConfigurationError(
                    f"{named}.tokenSecretRef: the Secret {token.name} gives no {token.key}: put the token there, or, for "
                    "a run on this machine, into HF_TOKEN"
                )
            environment["HF_TOKEN"] = value or environment["HF_TOKEN"]
        return environment


def _spoken(process: subprocess.Popen[bytes], order: str, go_on: Callable[[], None]) -> dict[str, Any]:
    answers = pipe(process.stdout)
    pipe(process.stdin).write(order.encode() + b"\n")
    pipe(process.stdin).flush()
    received = b""
    while not received.endswith(b"\n"):
        go_on()
        if not select.select([answers], [], [], _LOOK_SECONDS)[0]:
            continue
        more = os.read(answers.fileno(), 1 << 16)
        if not more:
            return {"failed": f"the process that speaks with the hub ended with {process.wait()}: see its words above"}
        received += more
    told: dict[str, Any] = json.loads(received)
    return told
