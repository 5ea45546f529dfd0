"""What the trainer's tests share: a tiny model, pictures and real ranks, each made once for a session; and agents."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from oarlock_trainer.commands import write_bundle
from oarlock_trainer.data import photographs

sys.path.insert(0, str(Path(__file__).parent / "support"))
from agent_process import Agent
from forked import Forks
from gang import Gang
from preprocess_runs import Preprocess
from tiny_models import made_tiny

from oarlock_local.pytest_tiers import Tier

if TYPE_CHECKING:
    from collections.abc import Iterator

if "PYTEST_XDIST_WORKER" in os.environ:
    # Several workers share the cores: threads beyond them would wait for one another, and spin while they do.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A machine that is busy draws slowly, and that is no failure of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Files that may take longest begin first, then those with real ranks, so that no worker is left with one at the end.

    In the quick tier all files that need a host are one worker's. In the deep tier they take longer than all others together:
    there each worker starts one.
    """
    places: dict[Path, int] = {}
    for item in items:
        ranks = _REAL_RANKS.intersection(getattr(item, "fixturenames", ()))
        place = 0 if item.get_closest_marker("timeout") else 1 if ranks else 2
        places[item.path] = min(place, places.get(item.path, place))
    items.sort(key=lambda item: places[item.path])
    hosts: dict[Path, str] = {}
    if config.getoption("--tier") == Tier.QUICK:
        hosts = {item.path: host for host in _HOSTS for item in items if host in getattr(item, "fixturenames", ())}
    for item in items:
        item.add_marker(pytest.mark.xdist_group(hosts.get(item.path, str(item.path))))


_HOSTS = ("gpu_gang", "forks")
"""Fixtures with a process that has imported all and forks ranks; a file with tests on both is the last one's."""
_REAL_RANKS = {*_HOSTS, "agent"}


@pytest.fixture(autouse=True)
def _gpus_are_given_back() -> Iterator[None]:
    """What this process has of a GPU's memory is what ranks of later tests lack."""
    yield
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        gc.collect()
        torch.cuda.empty_cache()


@pytest.fixture(autouse=True)
def _no_test_steps_back_for_those_after_it() -> Iterator[None]:
    """Parts of the product lower their thread's priority for good: in the tests' own it would last for all that follow."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    yield
    assert os.getpriority(os.PRIO_PROCESS, 0) == before, "run this in a thread or a process of its own"


@pytest.fixture(scope="session")
def tiny_flux() -> Path:
    """A FLUX.1 directory. Nobody changes it."""
    return made_tiny("flux")


@pytest.fixture(scope="session")
def tiny_flux2() -> Path:
    """A FLUX.2 directory. Nobody changes it."""
    return made_tiny("flux2")


@pytest.fixture(scope="session")
def tiny_sd3() -> Path:
    """A Stable Diffusion 3.5 directory. Nobody changes it."""
    return made_tiny("sd3")


@pytest.fixture(scope="session")
def tiny_qwen_image() -> Path:
    """A Qwen-Image directory. Nobody changes it."""
    return made_tiny("qwen_image")


@pytest.fixture(scope="session")
def tiny_qwen_image_edit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Qwen-Image-Edit directory. Nobody changes it."""
    from oarlock_trainer.models.qwenimage import tiny  # noqa: PLC0415 - brings torch

    directory = tmp_path_factory.mktemp("tiny") / "qwen-image-edit"
    tiny.write(directory, edit=True)
    return directory


@pytest.fixture(scope="session")
def tiny_wan() -> Path:
    """A Wan directory. Nobody changes it."""
    return made_tiny("wan")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pictures") / "photos"
    photographs.write(directory, count=24)
    return directory


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    found = Forks(tmp_path_factory.mktemp("forks"))
    yield found
    found.close()


@pytest.fixture(scope="session")
def gang(forks: Forks, tiny_flux: Path, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    found = Gang(tiny_flux, pictures, tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("gang"), forks=forks)
    yield found
    found.close()


@pytest.fixture(scope="session")
def gpu_gang(tiny_flux: Path, pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    """As `gang`, with a host that was told of GPUs before it imported anything: DeepSpeed is for them then."""
    found = Gang(tiny_flux, pictures, tmp_path_factory.mktemp("cache"), tmp_path_factory.mktemp("gang"))
    yield found
    found.close()


@pytest.fixture
def pause(tmp_path: Path) -> Iterator[Path]:
    """The file that pauses the storage of an attempt whose OARLOCK_PAUSE names it, while it exists."""
    path = tmp_path / "pause"
    yield path
    path.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def preprocess(forks: Forks, tiny_flux: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Preprocess]:
    pictures = tmp_path_factory.mktemp("many") / "photos"
    photographs.write(pictures, count=Preprocess.count)
    found = Preprocess(forks, tiny_flux, pictures)
    yield found
    found.close()


@pytest.fixture(scope="session")
def undisturbed(preprocess: Preprocess, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    output = tmp_path_factory.mktemp("undisturbed")
    (answer,) = preprocess(output)
    assert answer["code"] == 0, answer["said"]
    return output, answer


@pytest.fixture(scope="session")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent in one file, as other images get it. Nobody changes it."""
    return write_bundle.write(tmp_path_factory.mktemp("run"))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    process = Agent(tmp_path)
    yield process
    process.end()
