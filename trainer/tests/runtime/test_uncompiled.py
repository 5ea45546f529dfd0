"""torch without its compiler: nobody misses it, and who asks for it gets it."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from oarlock_local import patience

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_START = """
import os, sys
os.environ["TORCHDYNAMO_DISABLE"] = "1"
from oarlock_trainer.runtime.uncompiled import bring_back, import_torch
torch = import_torch()
compiler = lambda: "torch._dynamo.eval_frame" in sys.modules
assert not compiler(), "importing torch imported the compiler"
"""


_HOST = (
    _START
    + """
import json, traceback
for line in sys.stdin:
    said, told = os.pipe()
    if (pid := os.fork()) == 0:
        complaint = ""
        try:
            exec(json.loads(line))
        except BaseException:
            complaint = traceback.format_exc()
        os.write(told, complaint.encode()[-4000:])
        os._exit(0)
    os.close(told)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with open(said) as file:
        print(json.dumps(file.read() or ("" if code == 0 else f"ended with {code}")), flush=True)
"""
)


@pytest.fixture(scope="module")
def run() -> Iterator[Callable[[str], None]]:
    """Run a program in a fork of a process that has imported torch without its compiler."""
    host = subprocess.Popen([sys.executable, "-c", _HOST], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert host.stdin
    assert host.stdout
    asked, told = host.stdin, host.stdout

    def forked(program: str) -> None:
        asked.write(json.dumps(program) + "\n")
        asked.flush()
        assert json.loads(told.readline()) == ""

    yield forked
    asked.close()
    host.wait(timeout=patience.SECONDS)


def test_an_optimizer_steps_and_marked_functions_run_without_the_compiler(run: Callable[[str], None]) -> None:
    run("""
weight = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.AdamW([weight], lr=0.1)
weight.sum().backward()
optimizer.step()
optimizer.zero_grad()
assert weight[0] < 1
assert torch.compiler.disable(lambda: 7)() == 7
assert torch.compiler.disable(reason="x")(lambda: 8)() == 8
assert torch.compile(lambda: 9)() == 9
assert not compiler()
""")


def test_ranks_of_ddp_train_without_the_compiler(run: Callable[[str], None]) -> None:
    run("""
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 1))
model(torch.ones(2, 3)).sum().backward()
assert model.module.weight.grad.tolist() == [[2, 2, 2]]
assert not compiler()
assert torch._dynamo.utils.counters is not None
assert compiler()
""")


@pytest.mark.deep
def test_asked_for_more_than_marks_the_stand_in_makes_way_for_the_compiler(run: Callable[[str], None]) -> None:
    run("""
torch.compiler.disable(lambda: 7)
assert torch._dynamo.config.recompile_limit > 0
assert compiler()
assert torch.compile.__module__ == "torch"
""")


@pytest.mark.deep
def test_recomputed_activations_work(run: Callable[[str], None]) -> None:
    run("""
from torch.utils.checkpoint import checkpoint
x = torch.ones(3, requires_grad=True)
checkpoint(lambda y: (y * y).sum(), x, use_reentrant=False).backward()
assert x.grad.tolist() == [2, 2, 2]
""")


@pytest.mark.deep
def test_brought_back_the_compiler_is_imported_whole(run: Callable[[str], None]) -> None:
    run("""
bring_back()
bring_back()
import torch._dynamo.backends.registry
assert compiler()
""")


@pytest.mark.deep
def test_where_something_is_compiled_torch_is_left_as_it_is() -> None:
    program = _START.replace('"1"', '"0"').replace("assert not compiler()", "import torch._dynamo; assert compiler()")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
