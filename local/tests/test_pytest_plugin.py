"""Tests of clusters are begun before others, whatever their files are called."""

import subprocess
import sys
from pathlib import Path

FILES = {
    "test_a.py": "def test_plain(): pass\n",
    "test_b.py": "def test_plain(): pass\ndef test_of_a_control_plane(control_plane): pass\n",
    "test_c.py": "import pytest\n@pytest.mark.nodes\ndef test_of_nodes(): pass\ndef test_plain(): pass\n",
}


def test_files_with_nodes_come_first_then_control_planes_and_each_file_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = nodes\n")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "--rootdir", str(tmp_path), str(tmp_path)]
    collected = subprocess.run(command, cwd=tmp_path, check=False, capture_output=True, text=True).stdout
    assert [line for line in collected.splitlines() if "::" in line] == [
        "test_c.py::test_of_nodes",
        "test_c.py::test_plain",
        "test_b.py::test_plain",
        "test_b.py::test_of_a_control_plane",
        "test_a.py::test_plain",
    ]
