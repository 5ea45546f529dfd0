"""Credentials. Some are good for a while, as an exec plugin's: asked for anew once the server says that they no longer are.

A token file, as of a pod's account, is read anew by the official client.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog
from kubernetes.aio import config
from kubernetes.aio.client import Configuration

Load = Callable[[], Awaitable[Configuration]]
SECONDS_BETWEEN = 10.0
"""Between two calls of a plugin, whose next answer may be as bad as the last."""
log = structlog.get_logger(__name__)


async def load_configuration(kubeconfig: Path | None) -> tuple[Configuration, bool]:
    """Credentials and address, and whether we run inside the cluster.

    The order: the file given, the pod's service account, KUBECONFIG, ~/.kube/config.
    Raises ConfigException naming what is missing.
    """
    configuration = Configuration()
    if kubeconfig is None:
        try:
            config.load_incluster_config(client_configuration=configuration)
        except config.ConfigException:
            pass
        else:
            return configuration, True
    await config.load_kube_config(
        config_file=str(kubeconfig) if kubeconfig else None, client_configuration=configuration
    )
    return configuration, False


class Credentials:
    """Those in a configuration, which all who use it share. `load` reads the configuration again; None: they stay."""

    def __init__(self, configuration: Configuration, load: Load | None) -> None:
        self.renewals = 0
        """How often there were others. Whoever is refused says what this was when he asked."""
        self.certificate = _certificate(configuration)
        self._configuration, self._load = configuration, load
        self._loading = asyncio.Lock()
        self._loaded_at = time.monotonic() - SECONDS_BETWEEN

    async def renewed_since(self, renewals: int) -> bool:
        """Whether there are others than those of then, which this call may ask for. Of many that ask at once, one does."""
        if self._load is None:
            return False
        async with self._loading:
            if self.renewals == renewals and time.monotonic() - self._loaded_at >= SECONDS_BETWEEN:
                self._loaded_at = time.monotonic()
                try:
                    self._take(await self._load())
                except Exception as error:  # noqa: BLE001 - plugins and identity providers raise what their libraries raise
                    log.warning("there are no new credentials", error=f"{type(error).__name__}: {error}")
            return self.renewals != renewals

    def _take(self, new: Configuration) -> None:
        own, certificate = self._configuration, _certificate(new)
        if (new.api_key, certificate) != (own.api_key, self.certificate):
            own.api_key, own.cert_file, own.key_file = new.api_key, new.cert_file, new.key_file
            self.certificate = certificate
            self.renewals += 1
            log.info("new credentials were asked for, because the server took the old ones no more")


def _certificate(configuration: Configuration) -> tuple[bytes, ...]:
    """By its content: the client writes what a plugin or a kubeconfig has to files of ever new names."""
    return tuple(Path(name).read_bytes() for name in (configuration.cert_file, configuration.key_file) if name)
