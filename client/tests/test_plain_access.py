"""Kubeconfigs that are read without the official client, and those that are left to it."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import ssl
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import urllib3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from fake_api import FakeApi

from oarlock import official
from oarlock.access import plain_context
from oarlock.cluster import connect
from oarlock.errors import NoClusterError, OarlockError, RefusedError

SLOW_TO_IMPORT = (
    "kubernetes",
    "requests",
    "rich",
    "google.auth",
    "oarlock.official",
    "oarlock.web",
    "oarlock_api.trainingjob",
)
WHO = """
import sys
from oarlock.cli.main import run
code = run(["ls"])
print([name for name in {slow!r} if name in sys.modules], code)
"""


def config(folder: Path, **parts: Any) -> Path:
    """A kubeconfig whose context `one` has these fields of its user and its cluster."""
    whole = {
        "current-context": "one",
        "contexts": [{"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1/", **parts.pop("cluster", {})}}],
        "users": [{"name": "u", "user": parts.pop("user", {"token": "t0ken"})}],
        **parts,
    }
    path = folder / "config"
    path.write_text(json.dumps(whole))
    return path


def test_ls_imports_nothing_that_takes_long(api: FakeApi) -> None:
    api.add_job("flux", status={"phase": "Running", "progress": {"step": 1, "loss": 0.5}})
    told = subprocess.run(
        [sys.executable, "-c", WHO.format(slow=SLOW_TO_IMPORT)], capture_output=True, text=True, check=True
    )
    assert told.stdout.splitlines()[-1] == "[] 0"


def test_a_plain_context_has_its_server_its_namespace_and_its_token(tmp_path: Path) -> None:
    found = plain_context(config(tmp_path), None)
    assert found
    headers: dict[str, str] = {}
    found.access.authorize(headers)
    assert (found.name, found.namespace, found.access.host) == ("one", "team", "http://127.0.0.1:1")
    assert headers == {"Authorization": "Bearer t0ken"}


@pytest.mark.parametrize(
    "parts",
    [
        {"user": {"token": "t0ken", "as": "viewer"}},
        {"user": {"tokenFile": "/token"}},
        {"user": {"exec": {"command": "login"}}},
        {"user": {"auth-provider": {"name": "oidc"}}},
        {"user": {"username": "me", "password": "secret"}},
        {"user": {"token": "two\nlines"}},
        {"user": None},
        {"user": {"client-certificate": "none.crt"}, "cluster": {"server": "https://127.0.0.1:1"}},
        {"cluster": {"proxy-url": "http://proxy"}},
        {"cluster": {"insecure-skip-tls-verify": True}},
        {"cluster": {"server": "unix:///socket"}},
        {"cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": "bm9uZQ=="}},
        {"current-context": "two"},
        {"contexts": 3},
        {"users": [{"name": "u", "user": {"token": "1"}}, {"name": "u", "user": {"token": "2"}}]},
    ],
)
def test_what_is_not_plain_is_left_to_the_official_client(tmp_path: Path, parts: dict[str, Any]) -> None:
    assert plain_context(config(tmp_path, **parts), None) is None


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "http_proxy"])
def test_who_has_a_proxy_is_left_to_the_official_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://proxy:3128")
    assert plain_context(config(tmp_path), None) is None


@pytest.mark.parametrize("users", [{}, {"user": {"tokenFile": "/dev/null"}}], ids=["plain", "official"])
def test_all_proxy_is_taken_no_notice_of_as_by_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, users: dict[str, Any]
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    file = config(tmp_path, **users)
    found = plain_context(file, None) if not users else official.context_of([str(file)], None)
    assert found is not None
    assert not isinstance(found.access.pool, urllib3.ProxyManager)


def test_a_socks_proxy_that_cant_be_spoken_to_is_one_line_with_what_helps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "socks", None)
    file = config(tmp_path, cluster={"server": "https://127.0.0.1:1", "proxy-url": "socks5://bastion:1080"})
    with pytest.raises(NoClusterError, match=r"SOCKS proxy socks5://bastion:1080.*pip install pysocks") as told:
        official.context_of([str(file)], None)
    assert "\n" not in str(told.value)


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server that answers with its client's common name, and a folder with ca, server, client .crt/.key."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = certify(folder, "ca", None)
    for name in ("server", "client"):
        certify(folder, name, authority)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            subject = self.connection.getpeercert()["subject"]  # type: ignore[attr-defined]
            body = json.dumps({"name": dict(one[0] for one in subject)["commonName"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None: ...

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server = HTTPServer(("127.0.0.1", 0), Handler)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    server.socket = context.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}", folder
    server.shutdown()
    server.server_close()


def certify(
    folder: Path, name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Make a certificate and its key, as files too."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder(
            issuer[0].subject if issuer else own, own, key.public_key(), x509.random_serial_number()
        )
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .sign(issuer[1] if issuer else key, hashes.SHA256())
    )
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    return certificate, key


@pytest.mark.parametrize("written", ["in the kubeconfig", "in files beside it"])
def test_certificates_prove_both_sides(certified: tuple[str, Path], written: str) -> None:
    address, folder = certified

    def pem(field: str, file: str) -> dict[str, str]:
        if written == "in files beside it":
            return {field: file}
        return {f"{field}-data": base64.b64encode((folder / file).read_bytes()).decode()}

    who = {**pem("client-certificate", "client.crt"), **pem("client-key", "client.key")}
    path = config(folder, user=who, cluster={"server": address, **pem("certificate-authority", "ca.crt")})
    assert plain_context(path, None)
    assert connect(kubeconfig=str(path)).get("/") == {"name": "client"}


def test_a_server_that_the_authority_does_not_know_is_not_believed(certified: tuple[str, Path], tmp_path: Path) -> None:
    address, _ = certified
    certify(tmp_path, "ca", None)
    path = config(tmp_path, cluster={"server": address, "certificate-authority": "ca.crt"})
    assert plain_context(path, None)
    with pytest.raises(NoClusterError, match="CERTIFICATE_VERIFY_FAILED"):
        connect(kubeconfig=str(path)).get("/")


@pytest.mark.parametrize("reader", ["plain", "official"])
@pytest.mark.parametrize(
    ("authority", "more", "error", "words"),
    [
        pytest.param("ca.crt", {}, RefusedError, "answered 200", id="both prove who they are"),
        pytest.param(
            "ca.crt", {"tls-server-name": "other"}, NoClusterError, "CERTIFICATE_VERIFY_FAILED", id="another name"
        ),
        pytest.param("client.crt", {}, NoClusterError, "CERTIFICATE_VERIFY_FAILED", id="another CA"),
    ],
)
def test_a_web_socket_is_as_careful_as_any_other_request(
    *,
    certified: tuple[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    reader: str,
    authority: str,
    more: dict[str, str],
    error: type[OarlockError],
    words: str,
) -> None:
    address, folder = certified
    user = {"client-certificate": str(folder / "client.crt"), "client-key": str(folder / "client.key")}
    path = config(
        folder, user=user, cluster={"server": address, "certificate-authority": str(folder / authority), **more}
    )
    assert plain_context(path, None)
    if reader == "official":
        monkeypatch.setattr("oarlock.access.plain_context", lambda *_: None)
    with pytest.raises(error, match=words):
        connect(kubeconfig=str(path)).web_socket("/", protocol="none", seconds=30.0)
