"""The official Kubernetes client, where a kubeconfig is not plain: it knows plugins, identity providers, proxies and pods.

Importing this module takes it 0.3 s of processor time.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import getproxies

import urllib3
from kubernetes.client import ApiClient, Configuration
from kubernetes.config import load_incluster_config
from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger
from urllib3.exceptions import DependencyWarning

from oarlock.access import ACCOUNT, Context
from oarlock.errors import NoClusterError, last_words

IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
"""Fields of a kubeconfig's user that kubectl obeys and the official client for Python does not know."""


class Official:
    """An Access by the official client, which refreshes credentials."""

    def __init__(self, configuration: Configuration) -> None:
        """Raises NoClusterError where it is behind a proxy that can't be spoken to."""
        if _is_of_all_proxy(configuration):
            configuration.proxy = None
        try:
            with warnings.catch_warnings(action="ignore", category=DependencyWarning):  # the same in more words
                self._api = ApiClient(configuration)
        except ImportError as error:
            raise NoClusterError(
                f"the way to {configuration.host} goes through the SOCKS proxy {configuration.proxy}, for which a package "
                f"is missing ({error}): `pip install pysocks` into the Python that oarlock runs in"
            ) from error

    @property
    def host(self) -> str:
        """As Access has it."""
        return str(self._api.configuration.host)

    @property
    def pool(self) -> urllib3.PoolManager:
        """As Access has it."""
        pool: urllib3.PoolManager = self._api.rest_client.pool_manager
        return pool

    def authorize(self, headers: dict[str, str]) -> None:
        """As Access has it."""
        self._api.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)


def context_of(files: list[str], name: str | None) -> Context:
    """The context of that name, or the current one, of kubeconfigs that are merged. Raises NoClusterError."""
    file = os.pathsep.join(files)
    configuration = _configuration()
    with _told(f"the kubeconfig {file} cannot be used"):
        merged = KubeConfigMerger(file)
        loader = KubeConfigLoader(merged.config, active_context=name, config_persister=merged.save_changes)
        current = loader.current_context
        user = (current.get("context") or {}).get("user")
        found = merged.config["users"].get_with_name(user, safe=True)
        acts_as = sorted(each for each in IMPERSONATION if found and (found.value.get("user") or {}).get(each))
        plugin = ((found.value.get("user") or {}).get("exec") or {}).get("command") if found else None
        if not acts_as:
            said = _load(loader, configuration)
    if acts_as:
        raise NoClusterError(
            f"the user {user} of the kubeconfig {file} acts as another ({', '.join(acts_as)}), which is not supported, "
            "and to act as itself may be more than is meant: name another --context"
        )
    if plugin and not configuration.api_key and not configuration.cert_file:
        raise NoClusterError(
            f"the plugin {plugin} of the kubeconfig {file} gave no credentials: {said or 'log in anew'}"
        )
    own = (current.get("context") or {}).get("namespace") or "default"
    return Context(str(current.get("name")), own, Official(configuration))


def of_this_pod() -> Context:
    """What this pod's own account leads to. Raises NoClusterError."""
    configuration = _configuration()
    with _told("this pod's account cannot be used"):
        load_incluster_config(client_configuration=configuration)
        namespace = ACCOUNT / "namespace"
        own = namespace.read_text().strip() if namespace.exists() else "default"
    return Context("", own, Official(configuration))


def _is_of_all_proxy(configuration: Configuration) -> bool:
    """Whether its proxy is that of ALL_PROXY, which kubectl takes no notice of: by Go's rules each scheme has its own."""
    scheme = configuration.host.partition(":")[0]
    return getattr(configuration, "_proxy_from_env", False) and scheme not in getproxies()


def _load(loader: KubeConfigLoader, configuration: Configuration) -> str:
    """Read the credentials. Of a plugin that fails only the root logger hears, so its words are taken from there."""
    said: list[str] = []
    listener = logging.Handler()
    listener.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    root = logging.getLogger()
    root.addHandler(listener)
    try:
        loader.load_and_set(configuration)
    finally:
        root.removeHandler(listener)
    return " ".join(" ".join(said).split())[:300]


def _configuration() -> Configuration:
    configuration = Configuration()
    configuration.keep_alive = True  # else a connection that a node or a proxy forgot is waited on for ever
    return configuration


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # plugins and identity providers raise whatever their libraries raise
        raise NoClusterError(f"{what}: {last_words(error)}") from error
