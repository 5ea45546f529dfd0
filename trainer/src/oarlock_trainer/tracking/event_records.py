"""TensorBoard's event files: protobuf messages, each framed by its length and checksums (the format of TFRecord).

    length (8 bytes, little-endian) | checksum of these | message | checksum of the message

The messages hold the few fields of TensorFlow's event.proto and summary.proto that scalars need, under their numbers; so
TensorBoard, and whoever reads these files, takes them for its own. TensorBoard's own writer would bring gRPC and a web
server into the trainer.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

if TYPE_CHECKING:
    from collections.abc import Mapping

_VERSION = "brain.Event:2"
_START = 1
"""SessionLog.START: what stood in the file for this step and later ones counts no more."""
_CASTAGNOLI = 0x82F63B78
"""Polynomial of CRC-32C, bits reversed (RFC 3720, section 12.1)."""
_MASK = 0xA282EAD8
"""Added to a checksum that is stored beside what it is of, as TFRecord has it."""

_Field = descriptor_pb2.FieldDescriptorProto
_FIELDS: dict[str, tuple[tuple[str, int, int, str], ...]] = {
    "SessionLog": (("status", 1, _Field.TYPE_INT32, ""),),
    "Value": (("tag", 1, _Field.TYPE_STRING, ""), ("simple_value", 2, _Field.TYPE_FLOAT, "")),
    "Summary": (("value", 1, _Field.TYPE_MESSAGE, "Value"),),
    "Event": (
        ("wall_time", 1, _Field.TYPE_DOUBLE, ""),
        ("step", 2, _Field.TYPE_INT64, ""),
        ("file_version", 3, _Field.TYPE_STRING, ""),
        ("summary", 5, _Field.TYPE_MESSAGE, "Summary"),
        ("session_log", 7, _Field.TYPE_MESSAGE, "SessionLog"),
    ),
}
"""Message -> (field, number, type, message of the field)."""
_REPEATED = frozenset({("Summary", "value")})


def _event_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="events.proto", package="oarlock.tracking", syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for field, number, kind, inner in fields:
            label = _Field.LABEL_REPEATED if (name, field) in _REPEATED else _Field.LABEL_OPTIONAL
            of = f".{file.package}.{inner}" if inner else None
            message.field.add(name=field, number=number, type=kind, label=label, type_name=of)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.Event"))


Event = _event_class()


def beginning(time: float) -> bytes:
    """The first record of every file. `time` in seconds since the epoch, here and below."""
    return framed(Event(wall_time=time, file_version=_VERSION).SerializeToString())


def start(step: int, time: float) -> bytes:
    """The record that takes back `step` and all later ones of earlier files."""
    return framed(Event(wall_time=time, step=step, session_log={"status": _START}).SerializeToString())


def scalars(step: int, figures: Mapping[str, float], time: float) -> bytes:
    """The record of a step's figures, by their tags."""
    values = [{"tag": tag, "simple_value": value} for tag, value in figures.items()]
    return framed(Event(wall_time=time, step=step, summary={"value": values}).SerializeToString())


def framed(message: bytes) -> bytes:
    """A message as a record."""
    length = struct.pack("<Q", len(message))
    return b"".join((length, _masked(length), message, _masked(message)))


def crc32c(content: bytes) -> int:
    """CRC-32C (Castagnoli)."""
    found = 0xFFFFFFFF
    for byte in content:
        found = _TABLE[(found ^ byte) & 0xFF] ^ (found >> 8)
    return found ^ 0xFFFFFFFF


def _masked(content: bytes) -> bytes:
    found = crc32c(content)
    return struct.pack("<I", ((found >> 15 | found << 17) + _MASK) & 0xFFFFFFFF)


def _table() -> tuple[int, ...]:
    found = []
    for entry in range(256):
        value = entry
        for _ in range(8):
            value = value >> 1 ^ (_CASTAGNOLI if value & 1 else 0)
        found.append(value)
    return tuple(found)


_TABLE = _table()
