"""The storage check: what it needs, and what it says."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from oarlock_trainer.preflight import room, storage

NOBODY = 65534


def refusal_as(user: int, directory: Path) -> str:
    """What the check says to another user, in a process of that user."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        try:
            storage.check(directory, min_free=None, node="gpu-03")
        except storage.UnusableOutputError as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return said.read()


def in_own_mounts(script: str) -> subprocess.CompletedProcess[str]:
    """A shell script in a mount namespace of its own."""
    return subprocess.run(["unshare", "-m", "sh", "-ec", script], capture_output=True, text=True, check=False)


def needs_mounts(tmp_path: Path) -> None:
    if in_own_mounts(f"mount -t tmpfs tmpfs {tmp_path}").returncode:
        pytest.skip("this machine lets us mount nothing: needs root and mount namespaces")


CHECK = f"{sys.executable} -m oarlock_trainer check-storage"


def test_an_output_that_does_not_exist_yet_is_made_and_left_clean(tmp_path: Path) -> None:
    said = storage.check(tmp_path / "deep" / "flux", min_free=1)
    assert "is writable" in said
    assert list((tmp_path / "deep" / "flux" / ".oarlock").iterdir()) == []


def test_too_little_room_is_refused_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(
        storage.UnusableOutputError, match=r"\d+ bytes \(.*\) free, 1152921504606846976 bytes .* needed"
    ):
        storage.check(tmp_path, min_free=2**60)


def test_without_minfree_the_room_is_that_of_the_checkpoints_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "model/transformer").mkdir(parents=True)
    (tmp_path / "model/transformer/a.safetensors").write_bytes(b"x" * 1000)
    assert room.estimate(tmp_path / "model", keep=5, values=3) == 6 * 12 * 500
    assert room.estimate(tmp_path / "nowhere", keep=5, values=3) is None


def test_the_room_is_that_of_what_the_optimizer_and_an_average_keep_of_each_parameter() -> None:
    assert room.values({}) == 3
    assert room.values({"optimizer": {"name": "AdamW8Bit"}}) == 3, "8-bit moments are saved as float32"
    assert room.values({"optimizer": {"name": "Lion"}, "ema": None}) == 2
    assert room.values({"optimizer": {"name": "AdamW"}, "ema": {}}) == 4


def test_a_restarted_jobs_own_checkpoints_count_as_room(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    (tmp_path / "checkpoints/step-10-a1").mkdir(parents=True)
    with (tmp_path / "checkpoints/step-10-a1/weights").open("wb") as sparse:
        sparse.truncate(2**40)
    storage.check(tmp_path, min_free=free + 2**39)
    with pytest.raises(storage.UnusableOutputError, match="missing"):
        storage.check(tmp_path, min_free=free + 2**41)


def test_leftovers_of_a_crash_never_block_and_are_swept_once_old(tmp_path: Path) -> None:
    folder = tmp_path / ".oarlock"
    folder.mkdir()
    old, fresh = folder / "probe-0123.new", folder / "probe-4567"
    for leftover in (old, fresh):
        leftover.write_text("left by a crash")
    os.utime(old, (time.time() - 7200,) * 2)
    storage.check(tmp_path, min_free=None)
    assert [path.name for path in folder.iterdir()] == ["probe-4567"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to write as somebody else")
def test_a_directory_of_somebody_else_is_refused_with_owner_mode_writer_and_remedy() -> None:
    with tempfile.TemporaryDirectory() as shared:  # not below tmp_path: others can't enter that
        Path(shared).chmod(0o755)
        output = Path(shared) / "exports"
        output.mkdir()
        os.chown(output, 1000, 1000)
        output.chmod(0o755)
        said = refusal_as(NOBODY, output / "flux")
    assert f"node gpu-03 cannot write to {output / 'flux'}" in said
    assert f"{output} belongs to 1000:1000 (0755), the pod writes as 65534:65534" in said
    assert "set spec.pod.securityContext.runAsUser to 1000" in said


def test_a_full_file_system_is_refused_with_the_bytes_that_are_free(tmp_path: Path) -> None:
    needs_mounts(tmp_path)
    ended = in_own_mounts(
        f"mount -t tmpfs -o size=16k tmpfs {tmp_path}; mkdir -p {tmp_path}/flux/.oarlock; "
        f"dd if=/dev/zero of={tmp_path}/ballast bs=4k 2>/dev/null || true; {CHECK} {tmp_path}/flux"
    )
    assert ended.returncode == 84, ended.stderr
    assert "it is full, 0 bytes free" in ended.stdout


def test_a_file_system_without_inodes_is_refused_as_such_and_not_as_full(tmp_path: Path) -> None:
    needs_mounts(tmp_path)
    ended = in_own_mounts(
        f"mount -t tmpfs -o size=1m,nr_inodes=4 tmpfs {tmp_path}; mkdir -p {tmp_path}/flux/.oarlock; "
        f"touch {tmp_path}/ballast; {CHECK} {tmp_path}/flux"
    )
    assert ended.returncode == 84, ended.stderr
    assert "it holds as many files as it can, though" in ended.stdout


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.ESTALE, "unmount it on the node (`umount -f`)"),
        (errno.EIO, "`hard` among the mount options"),
        (errno.ETIMEDOUT, "`hard` among the mount options"),
        (errno.EDQUOT, "enlarge the quota"),
    ],
)
def test_what_a_broken_export_says_is_told_with_node_mount_and_remedy(
    code: int, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_descriptor: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", broken)  # such errors of a real export come when its server has gone
    with pytest.raises(storage.UnusableOutputError) as refused:
        storage.check(tmp_path, min_free=None, node="gpu-03")
    assert str(refused.value).startswith(f"output: node gpu-03 cannot write to {tmp_path} (")
    assert remedy in str(refused.value)


def test_a_storage_that_gives_back_other_bytes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "read_bytes", lambda _path: b"zeros of a torn write")
    with pytest.raises(storage.UnusableOutputError, match="reads other bytes from"):
        storage.check(tmp_path, min_free=None)


def test_a_read_only_mount_is_refused_by_name(tmp_path: Path) -> None:
    needs_mounts(tmp_path)
    ended = in_own_mounts(f"mount -t tmpfs -o ro tmpfs {tmp_path}; {CHECK} {tmp_path}/flux")
    assert ended.returncode == 84, ended.stderr
    assert f"tmpfs tmpfs at {tmp_path} is mounted read-only" in ended.stdout


def test_the_mount_is_the_longest_one_above_the_path(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "1 0 0:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:2 / /output rw - nfs4 10.0.0.100:/exports/output rw\n"
        "3 1 0:3 / /out rw - tmpfs tmpfs rw\n"
        "4 1 0:4 / /with\\040space rw shared:1 - xfs /dev/sdb rw\n"
        "nonsense\n"
    )
    assert str(storage.find_mount(Path("/output/flux"), table)) == "nfs4 10.0.0.100:/exports/output at /output"
    assert storage.find_mount(Path("/with space/x"), table).kind == "xfs"
    assert storage.find_mount(Path("/srv"), table).kind == "ext4"


def test_without_a_mount_table_the_check_still_works(tmp_path: Path) -> None:
    assert storage.find_mount(Path("/output"), tmp_path / "absent").kind == "unknown"
