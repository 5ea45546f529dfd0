"""What OpenCV may open, in a process of its own: the environment counts from its first import on."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from videos import write_video

if TYPE_CHECKING:
    from pathlib import Path

OPENS = """
import io, sys
from pathlib import Path
from oarlock_trainer.runtime.opencv import opencv

cv2 = opencv()
assert cv2.getNumThreads() == 1
stream = io.BytesIO(Path(sys.argv[1]).read_bytes())
sys.exit(0 if cv2.VideoCapture(stream, cv2.CAP_FFMPEG, []).isOpened() else 3)
"""


def opens(path: Path) -> bool:
    """Where the environment allows it all."""
    environment = {"OPENCV_FFMPEG_CAPTURE_OPTIONS": "protocol_whitelist;file,udp,rtp"}
    told = subprocess.run(
        [sys.executable, "-c", OPENS, str(path)], env=environment, capture_output=True, text=True, check=False
    )
    assert (told.returncode in {0, 3}, told.stdout, told.stderr) == (True, "", "")
    return told.returncode == 0


@pytest.mark.parametrize("name", ["a.webm", "a.mp4", "a.mov", "a.avi", "a.mkv"])
def test_videos_are_opened_by_what_is_in_them_whatever_their_ending(tmp_path: Path, name: str) -> None:
    assert opens(write_video(tmp_path / name))
    assert opens((tmp_path / name).rename(tmp_path / "b.mp4"))


def test_a_list_of_other_files_or_of_addresses_is_no_video_and_neither_is_a_picture(tmp_path: Path) -> None:
    write_video(tmp_path / "real.avi")
    texts = {
        "list": f"ffconcat version 1.0\nfile '{tmp_path}/real.avi'\n",
        "playlist": f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{tmp_path}/real.avi\n#EXT-X-ENDLIST\n",
        "session": "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=x\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\n"
        "m=video 45678 RTP/AVP 96\r\na=rtpmap:96 H264/90000\r\n",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.mp4").write_text(text)
    Image.new("RGB", (64, 48), "red").save(tmp_path / "picture.png")
    (tmp_path / "picture.png").rename(tmp_path / "picture.mp4")
    assert not [name for name in (*texts, "picture") if opens(tmp_path / f"{name}.mp4")]
