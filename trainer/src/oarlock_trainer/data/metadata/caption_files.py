"""The text files beside pictures that hold their captions: photo.txt for photo.png."""

from __future__ import annotations

import codecs
from posixpath import splitext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from oarlock_trainer.storage.files import Files

_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


class CaptionFileError(ValueError):
    """It is the caption that cannot be read: the picture may be fine."""


def caption_file(name: str) -> str:
    """The text file beside a picture."""
    return f"{splitext(name)[0]}.txt"


def text_beside(files: Files, name: str) -> str | None:
    """Content of the text file beside a picture, or None where there is none. Raises CaptionFileError."""
    file = caption_file(name)
    try:
        content = files.read(file)
    except FileNotFoundError:
        return None
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        encoding = "UTF-16" if content.startswith(_UTF16) else "WINDOWS-1252"
        raise _other_encoding(file, f"byte {error.start} is {content[error.start]:#04x}", encoding) from error
    if "\0" in text:
        raise _other_encoding(file, "it has zeros, as UTF-16 does", "UTF-16LE")
    return text


def _other_encoding(file: str, seen: str, encoding: str) -> CaptionFileError:
    return CaptionFileError(
        f"its caption {file} is not UTF-8 ({seen}): save it as UTF-8, with iconv -f {encoding} -t UTF-8 if it is that"
    )
