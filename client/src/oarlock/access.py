"""Who asks, and which API server: what a kubeconfig says of both, read here where it is plain.

Plain is one file, an https or http server with or without its own CA, and a user with a token, a certificate, or both: most
clusters' own kubeconfigs. The official client takes longer to import than all else that `oarlock ls` does
(docs/decisions/0045). Whatever else stands there - plugins, identity providers, token files, proxies, several files,
impersonation, mistakes - is the official client's to read, and to judge.
"""

from __future__ import annotations

import base64
import os
import socket
import ssl
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import urllib3
import yaml
from urllib3.connection import HTTPConnection
from urllib3.util.ssl_ import create_urllib3_context

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""What a pod knows of its account."""
POOL_SIZE = 16
"""Connections that are kept: facts are gathered by eight threads, pages are read by more."""
KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 9}
"""Seconds, seconds and probes, as kubectl has them: else a connection that a node or a proxy forgot is waited on for ever."""
_OF_A_CLUSTER = {"server", "certificate-authority", "certificate-authority-data", "tls-server-name", "extensions"}
_OF_A_USER = {"token", "client-certificate", "client-certificate-data", "client-key", "client-key-data"}
_PROXIES = ("http_proxy", "https_proxy")
_Yaml: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, where it is: ten times as fast, and some kubeconfigs have hundreds of clusters."""


class Access(Protocol):
    """The way to an API server as somebody. Several threads may use it."""

    @property
    def host(self) -> str:
        """The server's URL, without a slash at its end."""

    @property
    def pool(self) -> urllib3.PoolManager:
        """Its connections."""

    def authorize(self, headers: dict[str, str]) -> None:
        """Add what says who asks. Raises anything where credentials cannot be refreshed."""


@dataclass(frozen=True, slots=True)
class Plain:
    """A server, and a token or what the connections themselves prove."""

    host: str
    pool: urllib3.PoolManager
    token: str = ""

    def authorize(self, headers: dict[str, str]) -> None:
        """As Access has it; nothing here can fail."""
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"


@dataclass(frozen=True, slots=True)
class Context:
    """What a kubeconfig's context leads to."""

    name: str
    namespace: str
    access: Access


def plain_context(file: Path, name: str | None) -> Context | None:
    """The context of that name, or the current one; None where it is not plain, or anything at all is wrong with it."""
    if any(os.environ.get(proxy) or os.environ.get(proxy.upper()) for proxy in _PROXIES):
        return None
    try:
        config = yaml.load(file.read_text(encoding="utf-8"), Loader=_Yaml)  # noqa: S506 - both are safe loaders
        name = name or config["current-context"]
        context = _named(config["contexts"], name)["context"]
        cluster = _named(config["clusters"], context["cluster"])["cluster"]
        user = _named(config["users"], context["user"])["user"]
        if not _has_only(cluster, _OF_A_CLUSTER) or not _has_only(user, _OF_A_USER):
            return None
        access = _access(cluster, user, file.absolute().parent)
        return Context(str(name), str(context.get("namespace") or "default"), access)
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError, yaml.YAMLError):
        return None


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The only entry of that name. Raises ValueError where there is none, or several."""
    (found,) = [entry for entry in entries if entry["name"] == name]
    return found


def _has_only(fields: Mapping[str, Any], known: set[str]) -> bool:
    return {name for name, value in fields.items() if value} <= known


def _access(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> Plain:
    """Relative paths are below the kubeconfig's folder. Raises ValueError or OSError for what cannot be used."""
    host, token = str(cluster["server"]).rstrip("/"), str(user.get("token") or "")
    if not host.startswith(("https://", "http://")) or not token.isprintable():
        raise ValueError(host)
    options: dict[str, Any] = {"maxsize": POOL_SIZE, "socket_options": _socket_options()}
    if host.startswith("https://"):
        options["ssl_context"] = _trust(cluster, user, folder)
        if name := cluster.get("tls-server-name"):
            options["server_hostname"] = str(name)
    return Plain(host, urllib3.PoolManager(**options), token)


def _trust(cluster: Mapping[str, Any], user: Mapping[str, Any], folder: Path) -> ssl.SSLContext:
    context = create_urllib3_context()
    if authority := _pem(cluster, "certificate-authority", folder):
        context.load_verify_locations(cadata=authority.decode("ascii"))
    else:
        context.load_default_certs()
    certificate, key = _pem(user, "client-certificate", folder), _pem(user, "client-key", folder)
    if certificate or key:
        # OpenSSL reads it from a file alone, which is gone before the first request.
        with tempfile.NamedTemporaryFile() as both:
            both.write(certificate + b"\n" + key)
            both.flush()
            context.load_cert_chain(both.name, password=_no_password)
    return context


def _no_password() -> str:
    """Instead of a question on the terminal."""
    raise ValueError("the key has a password")


def _pem(fields: Mapping[str, Any], name: str, folder: Path) -> bytes:
    """What stands there itself, or the file that it names; empty where it has neither."""
    if data := fields.get(f"{name}-data"):
        return base64.b64decode(data)
    return (folder / path).read_bytes() if (path := fields.get(name)) else b""


def _socket_options() -> list[tuple[int, int, int | bytes]]:
    """urllib3's own, and probes of connections on which nothing comes."""
    probes = [
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in KEEP_ALIVE.items()
        if hasattr(socket, name)
    ]
    return [*HTTPConnection.default_socket_options, (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *probes]
