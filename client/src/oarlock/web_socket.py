"""A WebSocket to the API server, by the TLS and the proxy of its other connections. For what goes both ways: a port-forward.

The official client opens them as well, but waits for an answer for ever.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import urllib3
from urllib3.util.ssl_ import create_urllib3_context
from websocket import WebSocket


def connect(
    pool: urllib3.PoolManager, url: str, headers: Mapping[str, str], *, protocol: str, seconds: float
) -> WebSocket:
    """`pool` makes connections to that server, `url` begins with http. `seconds`: of each wait.

    Raises websocket.WebSocketException and OSError.
    """
    socket: Any = WebSocket(sslopt=_tls(pool.connection_pool_kw) if url.startswith("https:") else None)
    socket.settimeout(seconds)
    socket.connect(
        "ws" + url.removeprefix("http"),
        header=[f"{name}: {value}" for name, value in headers.items()],
        subprotocols=[protocol],
        suppress_origin=True,
        redirect_limit=0,  # whoever it led to would get the credentials
        **_proxy(pool),
    )
    opened: WebSocket = socket
    return opened


def _tls(given: Mapping[str, Any]) -> dict[str, Any]:
    """`given`: a pool's settings of its connections. Host names and chains are checked unless they say otherwise."""
    context = given.get("ssl_context")
    if context is None:
        context = create_urllib3_context(cert_reqs=given.get("cert_reqs"))
        if given.get("assert_hostname") is False:
            context.check_hostname = False
        if context.verify_mode != ssl.CERT_NONE:
            context.load_verify_locations(given["ca_certs"]) if given.get("ca_certs") else context.load_default_certs()
        if given.get("cert_file"):
            context.load_cert_chain(given["cert_file"], given.get("key_file"))
    name = given.get("server_hostname") or given.get("assert_hostname")
    return {"context": context, **({"server_hostname": name} if name else {})}


def _proxy(pool: urllib3.PoolManager) -> dict[str, Any]:
    """What the pool does, and nothing else that the environment may say."""
    if pool.proxy is None:
        return {"http_no_proxy": ["*"]}
    auth = pool.proxy.auth.partition(":") if pool.proxy.auth else None
    return {
        "http_proxy_host": pool.proxy.host,
        "http_proxy_port": pool.proxy.port,
        "proxy_type": "http",
        "http_no_proxy": [""],
        "http_proxy_auth": (auth[0], auth[2]) if auth else None,
    }
