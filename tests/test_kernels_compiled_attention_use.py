"""Compiled attention on threads, with bounds checked, and what it refuses."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from patience import PATIENCE_S

from twophase.kernels.compiled import attention, threads
from twophase.kernels.compiled.attention import (
    compiled_attention,
    compiled_paged_attention,
)

FOLDER = Path(__file__).resolve().parent


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_threads_find_what_one_finds(monkeypatch):
    q, k, v = draw(2, 1, 8, 16), draw(2, 600, 2, 16, seed=1), draw(2, 600, 2, 16, seed=2)
    k, v = k.bfloat16(), v.bfloat16()
    lengths = torch.tensor([600, 599])
    found = {}
    for n in (1, 2):
        monkeypatch.setattr(attention, "workers", lambda n=n: n)
        found[n] = compiled_attention(q, k, v, lengths)
    # sums of fp32 numbers near 1, cut elsewhere
    torch.testing.assert_close(found[2], found[1], rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("layer", "policy", "says"),
    [
        ("workqueue", "", "no OpenMP"),
        ("omp", "passive", "OMP_WAIT_POLICY"),
        ("omp", "active", None),
        ("tbb", "passive", None),
    ],
)
def test_threads_that_start_slowly_are_not_used_and_that_is_said_once(
    layer, policy, says, monkeypatch, recwarn
):
    monkeypatch.setattr(threads, "threading_layer", lambda: layer)
    monkeypatch.setenv("OMP_WAIT_POLICY", policy)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(threads.numba.config, "NUMBA_NUM_THREADS", 2)
    monkeypatch.setattr(threads.numba, "set_num_threads", lambda n: None)
    threads._must_be_serial.cache_clear()
    assert [threads.workers() for _ in range(3)] == [1 if says else 2] * 3
    assert [says in str(said.message) for said in recwarn] == ([True] if says else [])
    threads._must_be_serial.cache_clear()


def test_numbas_threads_leave_torchs_alone():
    before = torch.get_num_threads()
    threads.threading_layer.cache_clear()
    assert threads.threading_layer() in ("omp", "tbb", "workqueue")
    assert torch.get_num_threads() == before


def refused(says, **changed):
    store = draw(2, 8, 2, 4)
    given = {
        "q": draw(2, 1, 4, 4),
        "keys": store,
        "values": store,
        "lengths": torch.tensor([8, 8]),
    } | changed
    return pytest.param(given, says)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        refused("q .B, 1, N, H.", q=draw(2, 3, 4, 4)),
        refused("agree in width", q=draw(2, 1, 4, 5)),
        refused("a multiple of KV heads", q=draw(2, 1, 3, 4)),
        refused("q has 3 sequences", q=draw(3, 1, 4, 4), lengths=torch.tensor([8, 8, 8])),
        refused("of one dtype", keys=draw(2, 8, 2, 4).bfloat16()),
        refused("contiguous", keys=draw(2, 8, 2, 8)[..., :4]),
        refused("fp32 or bf16", keys=draw(2, 8, 2, 4).half(), values=draw(2, 8, 2, 4).half()),
        refused("2 whole numbers", lengths=torch.tensor([8])),
        refused("2 whole numbers", lengths=torch.tensor([8.0, 8.0])),
        refused("2 whole numbers", lengths=torch.tensor([8, -1])),
        refused("does not lie in 8 slots", lengths=torch.tensor([8, 9])),
        refused("does not lie in 8 slots", lengths=torch.tensor([8, 9]), window=9),
        refused("a window holds at least", window=0),
        refused("a window holds at least", window=2.5),
        refused("must be positive", softcap=-1.0),
        refused("must be positive", softcap=float("nan")),
        refused("must be positive", scale=float("nan")),
        refused("floating-point queries", q=torch.ones(2, 1, 4, 4, dtype=torch.int64)),
        refused("at least one number of each kind", q=draw(2, 1, 0, 4)),
        refused("at least one number of each kind", keys=draw(2, 0, 2, 4), values=draw(2, 0, 2, 4)),
        refused("on the CPU", keys=torch.empty(2, 8, 2, 4, device="meta")),
        refused("takes torch tensors; got Tensor, Tensor, Tensor, list", lengths=[8, 8]),
        refused("takes torch tensors; got list", q=[[1.0]]),
        refused("has no gradient", q=draw(2, 1, 4, 4).requires_grad_()),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(given, says):
    with pytest.raises(ValueError, match=says):
        compiled_attention(**given)


@pytest.mark.parametrize(
    ("block_table", "lengths", "says"),
    [
        (torch.tensor([[0, 1], [2, 4]]), [8, 5], "not among the 4"),
        (torch.tensor([[0, -1], [2, 3]]), [5, 8], "not among the 4"),
        (torch.tensor([[0, 2**62], [2, 3]]), [5, 8], "not among the 4"),  # times 4: block 0
        (torch.tensor([[0, -(2**62)], [2, 3]]), [5, 8], "not among the 4"),
        (torch.tensor([[0, 1], [2, 3]]), [9, 8], "does not fit into 2 blocks of 4"),
        (torch.tensor([[0, 1]]), [8, 8], "a block table is an int tensor"),
        (torch.tensor([[0.0, 1.0], [2.0, 3.0]]), [8, 8], "a block table is an int tensor"),
        (torch.tensor([[False, True], [True, True]]), [8, 8], "a block table is an int tensor"),
    ],
)
def test_a_block_table_that_names_what_is_not_there_is_refused(block_table, lengths, says):
    q, k, v = draw(2, 1, 4, 4), draw(4, 4, 2, 4), draw(4, 4, 2, 4)
    with pytest.raises(ValueError, match=says):
        compiled_paged_attention(q, k, v, block_table, torch.tensor(lengths))


@pytest.mark.more
def test_no_index_is_out_of_bounds(tmp_path):
    """In a process of its own with a cache of its own: every index checked, nothing compiled yet.
    What is fast is of no interest here, so the compiler optimizes little."""
    names = [
        "test_sequences_of_different",
        "test_pages",
        "test_a_ring",
        "test_latents",
        "-1-dtype1",
    ]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--noconftest"]
    run = subprocess.run(
        [*command, "-k", " or ".join(names), "test_kernels_compiled_attention.py"],
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "1"},
        cwd=FOLDER,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-2000:]
