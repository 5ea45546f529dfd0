"""The page in a cluster: `python -m oarlock.web`. Whoever logs in is asked for a token of the API server."""

from __future__ import annotations

import argparse
import json
import logging
import os
import ssl
import sys
from pathlib import Path

from urllib3 import PoolManager
from urllib3.util.ssl_ import create_urllib3_context

from oarlock.access import ACCOUNT
from oarlock.errors import OarlockError
from oarlock.web.access.token import TokenAuthenticator
from oarlock.web.app import build
from oarlock.web.guards import Csrf
from oarlock.web.mounts import Mount
from oarlock.web.serve import PORT, listening, serve
from oarlock.web.settings import OPERATOR_NAMESPACE, Settings

CONNECTIONS = 64
"""To the API server that are kept: each watch has one."""


def main(arguments: list[str] | None = None) -> int:
    """Serve until SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m oarlock.web", description=__doc__)
    parser.add_argument("--listen", default="0.0.0.0", metavar="ADDRESS", help="Address to listen at.")  # noqa: S104
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--host", action="append", default=[], metavar="NAME", help="Name that browsers know it by.")
    parser.add_argument("--api-server", default=_own_server(), metavar="URL", help="Default: this pod's cluster.")
    parser.add_argument("--ca-file", type=Path, default=ACCOUNT / "ca.crt", metavar="FILE", help="What signs its name.")
    parser.add_argument("--namespace", metavar="NAME", help="Namespace that / leads to (default: all).")
    parser.add_argument(
        "--operator-namespace", default=OPERATOR_NAMESPACE, metavar="NAME", help="Where the operator is."
    )
    parser.add_argument(
        "--output",
        action="append",
        default=[],
        type=_mount,
        metavar="JSON",
        help="One of the chart's dashboard.outputs.",
    )
    parser.add_argument("--actions", action="store_true", help="Let callers act on jobs and nodes, as themselves.")
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s")
    csrf = Csrf()
    settings = Settings(
        namespace=given.namespace,
        hosts=frozenset(name.lower() for name in given.host),
        actions=given.actions,
        operator_namespace=given.operator_namespace,
        outputs=tuple(given.output),
    )
    try:
        trust = _trust(given.ca_file) if given.api_server.startswith("https:") else None
        pool = PoolManager(maxsize=CONNECTIONS, ssl_context=trust)
        who = TokenAuthenticator(server=given.api_server.rstrip("/"), pool=pool, csrf=csrf)
        listener = listening(given.listen, given.port)
        port = listener.getsockname()[1]
        serve(build(settings, who, csrf=csrf), listener, started=lambda _: print(f"listening at {port}"))  # noqa: T201
    except (OarlockError, OSError) as error:
        sys.stderr.write(f"oarlock.web: {error}\n")
        return 1
    return 0


def _mount(given: str) -> Mount:
    """One of dashboard.outputs: whose jobs, the storage that their spec.output names, and where it is mounted here."""
    try:
        told = json.loads(given)
        nfs = told.get("nfs") or {}
        mount = Mount(
            folder=Path(told["folder"]),
            namespace=told["namespace"],
            server=nfs.get("server", ""),
            path=nfs.get("path", ""),
            claim=told.get("claimName", ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"{given!r} is no entry of dashboard.outputs: {error}") from error
    if not mount.namespace or bool(mount.claim) == bool(mount.server and mount.path):
        raise argparse.ArgumentTypeError(f"{given!r} has no namespace, or not one of nfs and claimName")
    return mount


def _own_server() -> str:
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", "kubernetes.default"),
        os.environ.get("KUBERNETES_SERVICE_PORT"),
    )
    return f"https://{f'[{host}]' if ':' in host else host}:{port or 443}"


def _trust(file: Path) -> ssl.SSLContext:
    context = create_urllib3_context()
    context.load_verify_locations(cafile=str(file))
    return context


if __name__ == "__main__":
    sys.exit(main())
