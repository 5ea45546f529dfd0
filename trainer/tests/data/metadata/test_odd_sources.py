"""Folders as strangers have them: names that are no text, links in circles, captions in other encodings, unread files."""

from __future__ import annotations

import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from oarlock_api.training import Training
from oarlock_trainer.data import picture_kinds
from oarlock_trainer.data.cache_keys import Encoders
from oarlock_trainer.data.metadata.build_parts import make_parts
from oarlock_trainer.data.metadata.discovery import Discovered
from oarlock_trainer.data.metadata.facts import facts_of
from oarlock_trainer.data.metadata.listing import Stems, read_chunk, write_listing, write_stems
from oarlock_trainer.data.metadata.recipe import Recipe, table_fingerprint
from oarlock_trainer.data.metadata.table import open_part
from oarlock_trainer.runtime.errors import ConfigurationError
from oarlock_trainer.storage.local import LocalFiles

if TYPE_CHECKING:
    from pathlib import Path

CAF = os.fsdecode(b"caf\xe9")
"""As a system that spoke Latin-1 wrote it."""


def save(path: Path, text: str | bytes | None = "a cat", **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (64, 64), "teal").save(path, **options)
    if text is not None:
        path.with_suffix(".txt").write_bytes(text.encode() if isinstance(text, str) else text)


def job(photos: Path, **dataset: Any) -> dict[str, Any]:
    return {
        "model": {"family": "Flux1", "path": "/m"}, "steps": 1, "resolution": 64,
        "data": {"datasets": [{"name": "photos", "source": {"path": str(photos)}} | dataset]},
    }  # fmt: skip


def fingerprint(training: Training) -> str:
    return table_fingerprint(training, Encoders(vae="v", text="t"))


class Source:
    """What a scan of a folder finds: rows, what cannot be used, and what was told."""

    def __init__(self, photos: Path, **dataset: Any) -> None:
        training = Training.model_validate(job(photos, **dataset))
        own = training.data.datasets[0]
        files, folder = LocalFiles(photos, field="source"), photos.parent / "out"
        self.told: list[str] = []
        pieces = write_listing(files, folder, with_captions=True, videos=bool(own.video), tell=self.told.append)
        recipe = Recipe(training=training, dataset=own, source=files.where, encoders=Encoders(vae="v", text="t"))
        found = Discovered(own, files, folder, pieces, threads=2)
        made = make_parts(found, range(len(found.groups)), recipe, folder, on=lambda _: None)
        self.rows = [row for one in made for row in open_part(folder, one.file).to_pylist()]
        self.names = [row["name"] for row in self.rows]
        self.bad = [bad for one in made for bad in facts_of(folder, one.file).listed]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    save(tmp_path / "photos" / "ok.png")
    return tmp_path / "photos"


def test_a_file_whose_name_is_not_utf8_is_left_out_and_told_with_its_bytes(photos: Path) -> None:
    save(photos / f"{CAF}.png")
    save(photos / f"folder {CAF}" / "a.png")
    found = Source(photos)
    assert found.names == ["ok.png"]
    assert [(bad.name, bad.kind) for bad in found.bad] == [
        (r"caf\xe9.png", "with a name that is not UTF-8"), (r"folder caf\xe9/a.png", "with a name that is not UTF-8"),
    ]  # fmt: skip
    assert not found.told


def test_names_that_are_not_utf8_complete_no_others(photos: Path) -> None:
    save(photos / f"{CAF}.png")
    files, folder = LocalFiles(photos, field="source"), photos.parent / "out"
    names, _ = Stems(folder, write_stems(files, folder)).complete(pa.array(["ok", r"caf\xe9"]))
    assert names.to_pylist() == ["ok.png", None]


def test_a_caption_in_another_encoding_is_named_and_its_picture_is_not_blamed(photos: Path) -> None:
    save(photos / "latin.png", "caf\u00e9".encode("latin-1"))
    save(photos / "sixteen.png", "a cat".encode("utf-16"))
    save(photos / "without-mark.png", "a cat".encode("utf-16-le"))
    save(photos / "marked.png", "\ufeffa dog".encode())
    found = Source(photos)
    assert {bad.kind for bad in found.bad} == {"with an unreadable caption"}
    seen = [("latin", "byte 3 is 0xe9", "WINDOWS-1252"), ("sixteen", "byte 0 is 0xff", "UTF-16")]
    assert [bad.reason for bad in found.bad] == [
        f"its caption {name}.txt is not UTF-8 ({what}): save it as UTF-8, with iconv -f {encoding} -t UTF-8 if it is that"
        for name, what, encoding in [*seen, ("without-mark", "it has zeros, as UTF-16 does", "UTF-16LE")]
    ]
    assert {row["name"]: row["captions"] for row in found.rows} == {"marked.png": ["a dog"], "ok.png": ["a cat"]}


def test_each_line_of_a_caption_file_is_a_caption_where_lines_are_drawn(photos: Path) -> None:
    save(photos / "many.png", "a cat\n\na  sleeping cat\r\n")
    alone, drawn = Source(photos).rows, Source(photos, captions={"lines": "Drawn"}).rows
    assert [row["captions"] for row in alone] == [["a cat a sleeping cat"], ["a cat"]]
    assert [row["captions"] for row in drawn] == [["a cat", "a sleeping cat"], ["a cat"]]
    # A line has the embedding that a file with it alone has.
    assert drawn[0]["text_keys"][0] == drawn[1]["text_keys"][0] == alone[1]["text_keys"][0]
    assert [row["image_key"] for row in drawn] == [row["image_key"] for row in alone]


def test_jobs_of_before_keep_what_they_have_scanned(photos: Path) -> None:
    def recipe(**captions: str) -> str:
        return fingerprint(Training.model_validate(job(photos, captions=captions)))

    assert recipe() == recipe(strategy="TextFile")
    assert recipe(lines="Drawn") not in {recipe(), recipe(lines="Joined")}


def test_pixels_that_nothing_says_the_white_of_are_left_out_by_their_header(photos: Path) -> None:
    Image.fromarray(np.zeros((64, 64), dtype=np.float32)).save(photos / "float.tiff")
    Image.fromarray(np.zeros((64, 64), dtype=np.uint16)).save(photos / "grey.png")
    (photos / "float.txt").write_text("a cat")
    (photos / "grey.txt").write_text("a cat")
    found = Source(photos)
    assert found.names == ["grey.png", "ok.png"]
    (bad,) = found.bad
    assert (bad.name, bad.kind) == ("float.tiff", "unreadable")
    assert "nothing says which are black and white" in bad.reason


def test_a_link_back_to_its_own_folder_is_not_entered_and_others_are(photos: Path) -> None:
    save(photos / "deep" / "a.png")
    save(photos.parent / "elsewhere" / "b.png")
    (photos / "self").symlink_to(".")
    (photos / "deep" / "up").symlink_to("../../photos")
    (photos / "there").symlink_to("../elsewhere")
    (photos.parent / "elsewhere" / "round").symlink_to("../elsewhere/round")
    found = Source(photos)
    assert found.names == ["deep/a.png", "ok.png", "there/b.png"]


def test_a_link_that_leads_nowhere_is_a_picture_that_cannot_be_read(photos: Path) -> None:
    (photos / "gone.png").symlink_to("nowhere.png")
    (photos / "itself.png").symlink_to("itself.png")
    (photos / "same.png").symlink_to("ok.png")
    (photos / "same.txt").symlink_to("ok.txt")
    found = Source(photos)
    assert found.names == ["ok.png", "same.png"]
    assert [(bad.name, bad.kind) for bad in found.bad] == [("gone.png", "unreadable"), ("itself.png", "unreadable")]


def test_pictures_are_known_by_their_extension_and_captions_from_the_same_listing(tmp_path: Path) -> None:
    save(tmp_path / "b" / "2.png")
    save(tmp_path / "a.JPG", text=None)
    told: list[str] = []
    files, folder = LocalFiles(tmp_path, field="source"), tmp_path / "out"
    chunk = read_chunk(folder, write_listing(files, folder, with_captions=True, tell=told.append)[0])
    assert chunk["name"].to_pylist() == ["a.JPG", "b/2.png"]
    assert [version is None for version in chunk["caption"].to_pylist()] == [True, False]
    assert not told


def test_files_that_nobody_reads_are_told_by_their_kinds(photos: Path) -> None:
    for name in ("a.gif", "b.gif", "sub/c.gif", "ok.TXT", "other.txt", "d.heic", "README", ".hidden.gif"):
        path = photos / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"x")
    (told,) = Source(photos).told
    assert told == (
        f"{photos}: files that are not read: 3 .gif, 1 .TXT, 1 .heic, 1 .txt, 1 without an ending "
        "(pillow-heif in the image would read .heic)"
    )


def test_a_folder_with_such_files_alone_says_which_they_are(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(12):
        (tmp_path / "photos" / f"{number}.k{number}").write_bytes(b"x")
    (tmp_path / "photos" / "a.heic").write_bytes(b"x")
    with pytest.raises(
        ConfigurationError, match=r"holds no picture that is read \(.*\.png.*\), but 1 \.heic, .* and 5 ot"
    ):
        Source(tmp_path / "photos")


def test_avif_is_read(photos: Path) -> None:
    save(photos / "new.avif", quality=50)
    assert Source(photos).names == ["new.avif", "ok.png"]


def test_heic_is_read_where_the_plug_in_is(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    registered: list[str] = []
    plug_in = ModuleType("pillow_heif")
    plug_in.register_heif_opener = lambda: registered.append("once")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pillow_heif", plug_in)
    picture_kinds.heif_is_read.cache_clear()
    try:
        save(photos / "phone.png")
        (photos / "phone.png").rename(photos / "phone.HEIC")  # what is in it is the plug-in's business
        assert Source(photos).names == ["ok.png", "phone.HEIC"]
        assert registered == ["once"]
    finally:
        picture_kinds.heif_is_read.cache_clear()
