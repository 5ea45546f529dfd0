"""The kubelet's side of a port-forward over a WebSocket: channel 0 has a port's bytes, channel 1 what is wrong with it."""

from __future__ import annotations

import base64
import hashlib
import socket
import struct
from http.server import BaseHTTPRequestHandler
from typing import Any, BinaryIO

from oarlock_local import patience

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, 4.2.2."""


def forward(handler: BaseHTTPRequestHandler, port: int) -> None:
    """Answer the handshake, and carry one request to a port of this machine, and its answer back."""
    proof = hashlib.sha1((handler.headers["Sec-WebSocket-Key"] + GUID).encode(), usedforsecurity=False).digest()
    handler.send_response(101)
    handler.send_header("Upgrade", "websocket")
    handler.send_header("Connection", "Upgrade")
    handler.send_header("Sec-WebSocket-Accept", base64.b64encode(proof).decode())
    handler.send_header("Sec-WebSocket-Protocol", "v4.channel.k8s.io")
    handler.end_headers()
    handler.close_connection = True
    asked = int(handler.path.rpartition("ports=")[2])
    for channel in (0, 1):
        _send(handler.wfile, bytes([channel]) + struct.pack("<H", asked))
    request = _receive(handler.rfile)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=patience.SECONDS) as pod:
            pod.sendall(request[1:])
            while piece := pod.recv(8192):
                _send(handler.wfile, b"\0" + piece)
    except OSError as error:
        _send(handler.wfile, b"\1" + f"error forwarding port {asked}: {error}".encode())
    handler.wfile.write(b"\x88\x00")


def _send(file: Any, payload: bytes) -> None:
    size = len(payload)
    head = bytes([0x82, size]) if size < 126 else bytes([0x82, 126]) + struct.pack(">H", size)
    file.write(head + payload)


def _receive(file: BinaryIO) -> bytes:
    _, second = file.read(2)
    size = second & 0x7F
    if size == 126:
        (size,) = struct.unpack(">H", file.read(2))
    mask = file.read(4)
    return bytes(byte ^ mask[place % 4] for place, byte in enumerate(file.read(size)))
