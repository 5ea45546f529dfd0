"""What the built images hold, looked at from inside: packages, bytecode, CUDA's libraries. No GPU is needed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from oarlock_local.demo.install import NAMESPACE
from tests.e2e.jobs import Jobs
from tests.images.bill import LOOK, installed, packages, write_bills
from tests.images.test_built_operator import DEPLOYMENT

pytestmark = [pytest.mark.nodes, pytest.mark.timeout(1800)]
Run = Callable[..., str]

NEEDED = """
import importlib.util, json, pathlib, subprocess
seen, missing = [], {}
for package in ("torch", "deepspeed", "triton._C", "nvidia.nccl", "nvidia.cudnn"):
    for folder in importlib.util.find_spec(package).submodule_search_locations:
        for library in [*pathlib.Path(folder).rglob("*.so"), *pathlib.Path(folder).rglob("*.so.*")]:
            seen.append(library.name)
            needs = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
            for line in needs.splitlines():
                if "not found" in line:
                    missing.setdefault(line.split()[0], []).append(library.name)
print(json.dumps([seen, missing]))
"""

OPENED = """
import ctypes, json, pathlib
import bitsandbytes, pynvml, torch
here = pathlib.Path(bitsandbytes.__file__).parent
ctypes.CDLL(str(here / f"libbitsandbytes_cuda{torch.version.cuda.replace('.', '')}.so"))
for name in ("nvrtc.so.13", "cublasLt.so.13", "cusolver.so.12", "cusparse.so.12", "cufft.so.12", "curand.so.10"):
    ctypes.CDLL("lib" + name)
try:
    pynvml.nvmlInit()
    driver = True
except pynvml.NVMLError_LibraryNotFound:
    driver = False
versions = [torch.version.cuda, torch.cuda.nccl.version(), torch.backends.cudnn.version()]
print(json.dumps([driver, versions]))
"""

WITHOUT_BYTECODE = """
import json, os, sys
loaded = {name: getattr(module, "__cached__", None) for name, module in list(sys.modules.items())}
print(json.dumps([len(loaded), [n for n, file in loaded.items() if isinstance(file, str) and not os.path.exists(file)]]))
"""


@pytest.fixture(scope="module", params=["operator", "trainer"])
def image(request: pytest.FixtureRequest, jobs: Jobs) -> tuple[str, Run]:
    """Each image's name, and a way to run a command in a pod of it."""
    if request.param == "trainer":
        return "trainer", request.getfixturevalue("shell")
    return "operator", lambda *command: jobs.cluster.kubectl("exec", "-n", NAMESPACE, DEPLOYMENT, "--", *command)


def test_an_image_holds_the_packages_of_its_bill_no_more_and_no_less(
    image: tuple[str, Run], tmp_path_factory: pytest.TempPathFactory
) -> None:
    part, run = image
    held, environment = installed(run("python", "-c", LOOK))
    assert held == packages(write_bills(tmp_path_factory.mktemp("bills"))[part], environment)


def test_nothing_that_a_start_imports_is_compiled_anew(image: tuple[str, Run]) -> None:
    part, run = image
    start = {
        "operator": "import oarlock_operator.__main__",
        "trainer": "from oarlock_trainer.ranks import preload; preload.import_everything(encoders=True)",
    }[part]
    number, missing = json.loads(run("python", "-c", start + WITHOUT_BYTECODE).splitlines()[-1])
    assert number > 500
    assert missing == []


def test_every_library_finds_what_it_links_to_but_the_driver(shell: Run) -> None:
    seen, missing = json.loads(shell("python", "-c", NEEDED))
    assert {"libtorch_cuda.so", "libtorch_nvshmem.so", "libnccl.so.2", "libtriton.so"} <= set(seen)
    # DeepSpeed's operator is opened after torch, whose libraries are there by then.
    own = {name for name, users in missing.items() if all(user.startswith("cpu_adam") for user in users)}
    assert own
    assert own <= set(seen)
    # The driver's, which the NVIDIA container toolkit mounts from the node.
    assert missing.keys() - own == {"libcuda.so.1"}, missing


def test_what_is_opened_by_name_on_gpus_opens(shell: Run) -> None:
    # torch, Triton and bitsandbytes open these by their names, when a program first needs them.
    driver, versions = json.loads(shell("python", "-c", OPENED).splitlines()[-1])
    assert not driver
    assert all(versions), versions


def test_infiniband_and_roce_can_be_used(shell: Run) -> None:
    # NCCL loads the first by this name, and says nothing where it is missing; the others are what it then needs.
    shell("python", "-c", "import ctypes; [ctypes.CDLL(f'lib{n}.so.1') for n in ('ibverbs', 'mlx5', 'rdmacm')]")
    assert "mlx5.driver" in shell("ls", "/etc/libibverbs.d").split()
    assert "mlx5" in shell("sh", "-c", "ls /usr/lib/*/libibverbs")


def test_the_fabrics_plugin_is_found_by_the_names_that_nccl_asks_for(shell: Run) -> None:
    if not shell("find", "/opt/amazon", "-name", "*.so*"):
        pytest.skip("the image was built without FABRIC: docs/images.md says how")
    shell("python", "-c", "import ctypes; [ctypes.CDLL(n) for n in ('libnccl-net.so', 'libfabric.so.1')]")
