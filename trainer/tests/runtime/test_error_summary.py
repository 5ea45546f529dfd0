"""What is told of an exception is what it says, not where in a library's source it was thrown."""

from __future__ import annotations

import pytest

from oarlock_trainer.runtime.error_summary import of_lost_peer, of_output, telling

STACK = (
    "\nException raised from throwTimeoutError at /__w/pytorch/torch/csrc/distributed/c10d/socket.cpp:1030 (most recent "
    "call first):\nframe #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x9d (0x7ffbe9d63bfd in libc10.so)\n"
    "<omitting python frames>\nframe #36: <unknown function> + 0x2724a (0x7ffbeac4524a in libc.so.6)\n"
)


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        pytest.param(
            "[/__w/pytorch/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
            "[10.4.0.7]:8629. This is typically caused by a remote worker crashing. Check the logs of the remote worker "
            "before reporting an error. GLHF! \U0001f3d6\ufe0f",
            "gloo: connection closed by peer [10.4.0.7]:8629",
            id="gloo, torch 2.13",
        ),
        pytest.param(
            "[../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 20000ms for recv operation "
            "to complete",
            "gloo: timed out waiting 20000ms for recv operation to complete",
            id="gloo, a silent peer",
        ),
        pytest.param(
            "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:77, remote process exited or there was a "
            "network error, NCCL version 2.27.5\nncclRemoteError: A call failed possibly due to a network error or a "
            "remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer "
            "flux-1-1<41552>" + STACK,
            "NCCL: remote process exited or there was a network error, NCCL version 2.27.5; socketProgress: Connection "
            "closed by remote peer flux-1-1<41552>",
            id="NCCL",
        ),
        pytest.param(
            "The client socket has timed out after 3000ms while trying to connect to (10.4.0.7, 29500)." + STACK,
            "torch: the client socket has timed out after 3000ms while trying to connect to (10.4.0.7, 29500)",
            id="the store",
        ),
        pytest.param("TCPStore: broken pipe", "torch: TCPStore: broken pipe", id="a name keeps its capitals"),
    ],
)
def test_a_lost_peer_is_one_clause(text: str, clause: str) -> None:
    assert of_lost_peer(text) == f"lost connection to a peer ({clause})"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("step 1\nstep 2\n\n", "step 2"),
        ("Traceback (most recent call last):\nKeyError: 'photos'\nwandb: run ended\n", "KeyError: 'photos'"),
        (
            "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried\n",
            "torch.OutOfMemoryError: CUDA out of memory. Tried",
        ),
        ("KeyError: 'a'\nsubprocess.CalledProcessError: Command '['python']' returned 1\n", "KeyError: 'a'"),
        (
            "[rank0]: ValueError: no data\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n=====\n",
            "ValueError: no data",
        ),
        ("  File 'a.py', line 1, in ValueError: nothing\n", "File 'a.py', line 1, in ValueError: nothing"),
        ("E" * 1000, "E" * 300),
    ],
)
def test_of_a_programs_output_the_last_exception_is_told_and_not_how_its_launcher_ended(output: str, line: str) -> None:
    assert of_output(output) == line


def test_a_native_stack_is_cut_off_and_other_lines_stay() -> None:
    assert telling("RuntimeError: no room" + STACK) == "RuntimeError: no room"
    said = "12 of 24 pictures cannot be used:\n  photos: frame #3.png: torn\nAll are listed in /output"
    assert telling(said) == said
