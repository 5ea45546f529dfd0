"""torch without its compiler: nobody misses it, and who asks for it gets it."""

from __future__ import annotations

import subprocess
import sys

_START = """
import os, sys
os.environ["TORCHDYNAMO_DISABLE"] = "1"
from oarlock_trainer.uncompiled import bring_back, import_torch
torch = import_torch()
compiler = lambda: "torch._dynamo.eval_frame" in sys.modules
assert not compiler(), "importing torch imported the compiler"
"""


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", _START + program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_an_optimizer_steps_and_marked_functions_run_without_the_compiler() -> None:
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


def test_asked_for_more_than_marks_the_stand_in_makes_way_for_the_compiler() -> None:
    run("""
torch.compiler.disable(lambda: 7)
assert torch._dynamo.config.recompile_limit > 0
assert compiler()
assert torch.compile.__module__ == "torch"
""")


def test_recomputed_activations_work() -> None:
    run("""
from torch.utils.checkpoint import checkpoint
x = torch.ones(3, requires_grad=True)
checkpoint(lambda y: (y * y).sum(), x, use_reentrant=False).backward()
assert x.grad.tolist() == [2, 2, 2]
""")


def test_brought_back_the_compiler_is_imported_whole() -> None:
    run("""
bring_back()
bring_back()
import torch._dynamo.backends.registry
assert compiler()
""")


def test_where_something_is_compiled_torch_is_left_as_it_is() -> None:
    program = _START.replace('"1"', '"0"').replace("assert not compiler()", "import torch._dynamo; assert compiler()")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
