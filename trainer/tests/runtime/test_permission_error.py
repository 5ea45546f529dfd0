"""What is told where this process may not read or write: who, what, whose, and what mends it."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from saving import RANK_INFO

from oarlock_api.contract.job_file import JobFile
from oarlock_api.training import Training
from oarlock_trainer.checkpoint.format import valid_checkpoints
from oarlock_trainer.commands.config_checks import check_config
from oarlock_trainer.data.metadata.discovery import header
from oarlock_trainer.data.metadata.sources import check_folder
from oarlock_trainer.models import folder
from oarlock_trainer.models.flux.family import FLUX1
from oarlock_trainer.runtime.errors import ConfigurationError, StorageError, readable, storage
from oarlock_trainer.runtime.job import Job
from oarlock_trainer.storage.local import LocalFiles
from oarlock_trainer.storage.locations import Locations

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be somebody else")
SOMEBODY = 1000


def told_to(user: int, work: Callable[[], object]) -> str:
    """What `work` raises in a process of another user: the class and the message."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - all of it is looked at in the parent
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as said:
        return said.read()


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may enter: tmp_path is for its owner alone."""
    with tempfile.TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        yield Path(made)


def picture(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (8, 8), "teal").save(path)
    path.with_suffix(".txt").write_text("a cat")


def test_a_model_that_root_made_for_itself_is_the_jobs_fault_with_owner_mode_reader_and_remedy(
    tiny_flux: Path, shared: Path
) -> None:
    model = shared / "flux"
    shutil.copytree(tiny_flux, model)
    weights = model / "vae/diffusion_pytorch_model.safetensors"
    weights.chmod(0o600)
    assert told_to(SOMEBODY, lambda: folder.check(model, FLUX1, field="training.model.path")) == (
        f"ConfigurationError: training.model.path: user 1000:1000 may not read {weights}: it belongs to "
        f"0:0, mode 0600. To mend it, let others read all of it: chmod -R a+rX {model}"
    )


@pytest.mark.parametrize("closed", ["models", "models/flux"])
def test_a_plan_tells_which_folder_of_a_model_is_closed(closed: str, tiny_flux: Path, shared: Path) -> None:
    model = shared / "models" / "flux"
    shutil.copytree(tiny_flux, model)
    training = Training.model_validate(
        {
            "model": {"family": "Flux1", "path": str(model)}, "steps": 1, "method": "LoRA",
            "data": {"datasets": [{"name": "d", "source": {"path": "/d"}}]},
            "validation": {"everySteps": 1, "prompts": [{"name": "boat", "prompt": "a boat"}]},
        }
    )  # fmt: skip
    file = JobFile(
        job="flux", namespace="default", job_uid="uid", attempt=1, nodes=1, gpus_per_node=0,
        output_directory=str(shared), training={},
    )  # fmt: skip
    job = Job(file=file, training=training, rank_info=RANK_INFO, simulate_gpus=True)
    check_config(job, Locations())
    (shared / closed).chmod(0o700)
    said = told_to(SOMEBODY, lambda: check_config(job, Locations()))
    assert said.startswith(f"ConfigurationError: training.model.path: user 1000:1000 may not read {model}")
    assert "belongs to 0:0, mode 0700" in said


def test_a_closed_folder_on_the_way_is_named_and_its_owner_as_a_way_out(shared: Path) -> None:
    picture(shared / "home" / "photos" / "1.png")
    os.chown(shared / "home", 1234, 1234)
    (shared / "home").chmod(0o700)
    said = told_to(SOMEBODY, lambda: check_folder(shared / "home" / "photos", field="source.path"))
    assert f"ConfigurationError: source.path: user 1000:1000 may not read {shared}/home/photos" in said
    assert f"{shared}/home belongs to 1234:1234, mode 0700" in said
    assert f"chmod a+rX {shared}/home, or run as user 1234 (spec.pod.securityContext.runAsUser)" in said


def test_pictures_that_may_not_be_read_are_no_damaged_ones(shared: Path) -> None:
    picture(shared / "1.png")
    (shared / "1.png").chmod(0o600)
    said = told_to(SOMEBODY, lambda: header(LocalFiles(shared, field="source.path"), "1.png"))
    assert f"ConfigurationError: source.path: user 1000:1000 may not read {shared}/1.png" in said


def test_a_folder_of_pictures_that_may_not_be_listed_is_not_left_out_in_silence(shared: Path) -> None:
    picture(shared / "open" / "1.png")
    picture(shared / "closed" / "2.png")
    (shared / "closed").chmod(0o700)
    said = told_to(SOMEBODY, lambda: LocalFiles(shared, field="source.path").list())
    assert f"may not read {shared}/closed: it belongs to 0:0, mode 0700" in said


def test_an_output_of_somebody_else_is_told_with_the_folder_that_is_closed(shared: Path) -> None:
    def write() -> None:
        with storage("saving step 3"):
            (shared / "checkpoints" / "step-3").mkdir(parents=True)

    assert told_to(SOMEBODY, write) == (
        f"StorageError: saving step 3: user 1000:1000 may not write {shared}/checkpoints: {shared} "
        f"belongs to 0:0, mode 0755. To mend it, give {shared} to 1000:1000"
    )


def test_a_checkpoint_that_may_not_be_read_is_not_passed_over(shared: Path) -> None:
    manifest = shared / "checkpoints" / "step-3-a1" / "manifest.json"
    manifest.parent.mkdir(parents=True)
    manifest.write_text("{}")
    manifest.chmod(0o600)

    def look() -> None:
        with storage("taking over"):
            valid_checkpoints(shared)

    assert f"may not read {manifest}: it belongs to 0:0" in told_to(SOMEBODY, look)


def test_an_error_that_names_no_file_is_told_with_who_asked() -> None:
    with (
        pytest.raises(StorageError, match=r"user \d+:\d+: \[Errno 1\] Operation not permitted"),
        storage("a"),
    ):
        raise PermissionError(1, "Operation not permitted")


def test_where_the_mode_would_allow_it_other_barriers_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="SELinux"), readable("source.path", tmp_path):
        raise PermissionError(13, "Permission denied", str(tmp_path))
