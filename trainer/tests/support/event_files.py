"""TensorBoard's event files as their reader sees them."""

from __future__ import annotations

import struct
from typing import Any

from oarlock_trainer.tracking import event_records


def records(content: bytes) -> list[Any]:
    """The events of a file, whose every checksum is right."""
    found = []
    while content:
        head, of_head = content[:8], content[8:12]
        (length,) = struct.unpack("<Q", head)
        body, of_body, content = content[12 : 12 + length], content[12 + length : 16 + length], content[16 + length :]
        for part, checksum in ((head, of_head), (body, of_body)):
            crc = event_records.crc32c(part)
            assert struct.unpack("<I", checksum)[0] == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
        found.append(event_records.Event.FromString(body))
    return found
