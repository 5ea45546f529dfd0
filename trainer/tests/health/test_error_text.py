"""What programs say of GPUs, as CUDA, cuDNN, NCCL and torch write it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock_trainer.health import error_text
from oarlock_trainer.health.error_text import ErrorSource

GPU = [
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "RuntimeError: CUDA error: unspecified launch failure",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    "torch.AcceleratorError: CUDA error: misaligned address",
    "CUDA error: uncorrectable NVLink error detected during the execution",
    "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
    "RuntimeError: CUDA error: unknown error",
    "RuntimeError: No CUDA-capable device is detected",
    "RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "torch.distributed.DistBackendError: NCCL error in: x.cpp:1\nncclUnhandledCudaError: Call to CUDA function failed.",
]
PEER = [
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.",
    "[rank3]: [3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)",
    "NCCL WARN socketProgress: Connection closed by remote peer flux-0",
    "RuntimeError: NCCL communicator was aborted on rank 3",
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.7]:39212",
    "[W1122 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3): Connection reset by peer",
    "[rank1]: torch.distributed.DistNetworkError: Connection reset by peer",
    "NCCL WARN NET/Socket : socket was closed by flux-2",
]
APPLICATION = [
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB.",
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "RuntimeError: Detected mismatch between collectives on ranks.",
    "RuntimeError: CUDA error: device-side assert triggered",
]
NOTHING = ["ValueError: bad caption", "KeyError: 'cuda'", "", "FileNotFoundError: data/nccl.yaml"]
OTHERS_CONNECTIONS = [
    "ConnectionResetError: [Errno 104] Connection reset by peer",
    "botocore.exceptions.ConnectionClosedError: Connection was closed: https://s3.example.com/photos",
    "urllib3.exceptions.ProtocolError: ('Connection aborted.', ConnectionResetError(104, 'Connection reset by peer'))",
    "requests.exceptions.ConnectionError: Connection closed by peer",
    "wandb: ERROR the socket was closed",
]


@pytest.mark.parametrize("text", GPU)
def test_what_only_a_gpu_says_is_its_fault(text: str) -> None:
    found = error_text.find(text)
    assert found is not None
    assert found[0] is ErrorSource.GPU


@pytest.mark.parametrize("text", PEER)
def test_what_a_victim_says_is_a_lost_peer(text: str) -> None:
    found = error_text.find(text)
    assert found is not None
    assert found[0] is ErrorSource.PEER


@pytest.mark.parametrize("text", APPLICATION)
def test_memory_asserts_and_mismatches_are_the_programs_own(text: str) -> None:
    found = error_text.find(text)
    assert found is not None
    assert found[0] is ErrorSource.APPLICATION


@pytest.mark.parametrize("text", OTHERS_CONNECTIONS)
def test_a_connection_to_anybody_else_is_no_peer(text: str) -> None:
    assert error_text.find(text) is None


@pytest.mark.parametrize("text", NOTHING)
def test_other_errors_are_nobodys_guess(text: str) -> None:
    assert error_text.find(text) is None


def test_the_line_that_says_so_is_quoted_and_the_last_one_counts() -> None:
    text = f"Traceback (most recent call last):\n  File x\n{GPU[1]}\nCompile with TORCH_USE_CUDA_DSA"
    assert error_text.find(text) == (ErrorSource.GPU, GPU[1])


def test_a_rank_that_ran_out_of_memory_before_it_lost_its_peers_is_no_victim() -> None:
    found = error_text.find(f"{APPLICATION[0]}\n{PEER[2]}")
    assert found is not None
    assert found[0] is ErrorSource.APPLICATION


def test_of_an_output_the_last_line_that_fits_decides_because_the_others_were_survived() -> None:
    output = f"{APPLICATION[0]}\nhalving the batch\nstep 12\n{GPU[2]}\nterminate called\n"
    assert error_text.find_last(output) == (ErrorSource.GPU, GPU[2])
    assert error_text.find_last(f"{GPU[2]}\n{APPLICATION[0]}\n") == (ErrorSource.APPLICATION, APPLICATION[0])


@pytest.mark.parametrize("cause", [APPLICATION[0], GPU[0]])
def test_of_an_output_a_lost_peer_never_hides_what_was_told_before(cause: str) -> None:
    found = error_text.find_last(f"{cause}\n{PEER[2]}\n")
    assert found is not None
    assert found[1] == cause


def test_of_an_output_the_last_lost_peer_is_quoted_where_nothing_else_is_told() -> None:
    assert error_text.find_last(f"{PEER[0]}\n{PEER[2]}\nbye") == (ErrorSource.PEER, PEER[2])


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    error_text.find(text)
    error_text.find_last(text)
