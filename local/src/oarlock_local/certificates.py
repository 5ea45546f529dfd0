"""The certificates of one cluster: its authority, the API server's, and one per client, with their kubeconfigs.

Keys are P-256: a whole cluster's take a few milliseconds. They are worth nothing outside the cluster, which lives
on this machine only; the folder is readable by its owner alone all the same.
"""

import base64
import datetime as dt
import ipaddress
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from oarlock_local.addresses import DOMAIN, KUBERNETES_SERVICE
from oarlock_local.spec import ClusterSpec

_LIFETIME = dt.timedelta(days=365)
# A clock that steps back a little must not make a fresh certificate "not yet valid".
_BACKDATED = dt.timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Client:
    """Somebody who talks to the API server."""

    file: str
    user: str
    groups: tuple[str, ...] = ()


def clients(nodes: Iterable[str]) -> list[Client]:
    """Everybody who needs a certificate in a cluster with those nodes."""
    return [
        Client("admin", "oarlock-local", ("system:masters",)),
        Client("apiserver-to-kubelet", "kube-apiserver", ("system:masters",)),
        Client("controller-manager", "system:kube-controller-manager"),
        Client("scheduler", "system:kube-scheduler"),
        *(Client(node, f"system:node:{node}", ("system:nodes",)) for node in nodes),
    ]


def write_all(spec: ClusterSpec) -> None:
    """Write certificates, keys and kubeconfigs into the cluster's folder."""
    folder = spec.folder.certificates
    folder.mkdir(mode=0o700)
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("oarlock-local", (), authority_key, issuer=None)
    _write(folder, "ca", authority, authority_key)

    signing_key = ec.generate_private_key(ec.SECP256R1())
    _write_key(folder / "service-accounts.key", signing_key)
    (folder / "service-accounts.pub").write_bytes(
        signing_key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )
    server_key = ec.generate_private_key(ec.SECP256R1())
    hosts = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    hosts += [f"kubernetes.default.svc.{DOMAIN}"]
    addresses = ["127.0.0.1", KUBERNETES_SERVICE, spec.addresses.control_plane]
    names = [x509.DNSName(host) for host in hosts]
    names_and_addresses: list[x509.GeneralName] = [*names, *(_address(each) for each in addresses)]
    server = _certificate("kube-apiserver", (), server_key, (authority, authority_key), names_and_addresses)
    _write(folder, "apiserver", server, server_key)

    for client in clients(spec.node_names):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(client.user, client.groups, key, (authority, authority_key))
        _write(folder, client.file, certificate, key)
        _write_kubeconfig(spec, client, authority, certificate, key)
    (folder / "admin.kubeconfig").rename(spec.folder.kubeconfig)


def _address(text: str) -> x509.IPAddress:
    return x509.IPAddress(ipaddress.ip_address(text))


def _certificate(
    user: str,
    groups: Sequence[str],
    key: ec.EllipticCurvePrivateKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None,
    names: Sequence[x509.GeneralName] = (),
) -> x509.Certificate:
    # To Kubernetes, a client certificate's common name is the user and its organizations are the groups.
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*attributes, x509.NameAttribute(NameOID.COMMON_NAME, user)])
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
    )
    if issuer:
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        # Python's ssl asks for the authority's key identifier since 3.13 (VERIFY_X509_STRICT).
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer[1].public_key())
        builder = builder.add_extension(identifier, critical=False)
    else:
        usage = x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=True,
            crl_sign=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(issuer[1] if issuer else key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    (folder / f"{name}.crt").write_bytes(_pem(certificate))
    _write_key(folder / f"{name}.key", key)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(_key_pem(key))


def _write_kubeconfig(
    spec: ClusterSpec,
    client: Client,
    authority: x509.Certificate,
    certificate: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
) -> None:
    name = f"oarlock-{spec.folder.name}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": client.file}}],
        "clusters": [
            {
                "name": name,
                "cluster": {"server": spec.addresses.api_url, "certificate-authority-data": _base64(_pem(authority))},
            }
        ],
        "users": [
            {
                "name": client.file,
                "user": {
                    "client-certificate-data": _base64(_pem(certificate)),
                    "client-key-data": _base64(_key_pem(key)),
                },
            }
        ],
    }
    path = spec.folder.certificates / f"{client.file}.kubeconfig"
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(config))


def _base64(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
