"""Simulated ranks whose tensors are on a card, and one real rank over NCCL.

NCCL refuses two ranks on one card; more need more cards.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from device_tools import CARD, needs_a_card, same_on_a_card

from twophase import models
from twophase.kernels import sharding
from twophase.kernels.collectives import (
    Comm,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce_scatter,
    simulate,
)
from twophase.kernels.expert_parallel import expert_parallel
from twophase.models.generate import complete, complete_batch, decode, encode
from twophase.parallel.layouts import LAYOUTS, build
from twophase.parallel.weights import CourseFile

pytestmark = needs_a_card
n = torch.randn
PROMPTS = [encode(text) for text in ("def read(path):", "import", "x = [", "#", "for i in")]
H = 4
PATIENCE_S = 100  # of a process that takes ten seconds: a card is lent for minutes


def rings(x: torch.Tensor) -> Any:
    def rank(comm: Comm) -> Any:
        own = x * (comm.rank + 1)
        comm.send(own, (comm.rank + 1) % comm.size)
        came = comm.receive((comm.rank - 1) % comm.size)
        parts = comm.all_to_all([own[: i + 1] for i in range(comm.size)])
        return (
            ring_all_reduce(comm, own),
            ring_all_gather(comm, own),
            ring_reduce_scatter(comm, own),
            comm.broadcast(own, 1),
            came,
            parts,
        )

    return list(simulate(3, rank))


def mlps(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> Any:
    def rank(comm: Comm) -> Any:
        own = [sharding.columns(w, comm.rank, comm.size) for w in (gate, up)]
        cut = sharding.tensor_mlp(comm, x, *own, sharding.rows(down, comm.rank, comm.size))
        mine = x.tensor_split(comm.size)[comm.rank]
        return cut, sharding.gathered_mlp(
            comm, mine, *own, sharding.rows(down, comm.rank, comm.size)
        )

    return list(simulate(2, rank))


def heads(x: torch.Tensor, *weights: torch.Tensor) -> Any:
    def rank(comm: Comm) -> Any:
        parts = sharding.head_parts(*weights, H, comm.rank, comm.size)
        return sharding.tensor_attention(comm, x, parts, H)

    return list(simulate(2, rank))


def by_length(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *cache: torch.Tensor) -> Any:
    """One of two ranks holds all positions, the other none."""

    def rank(comm: Comm) -> Any:
        new = sharding.Projected(*(x.chunk(2, -1)[comm.rank] for x in (q, k, v)))
        held = [x.clone() if comm.rank == 0 else x[:, :0] for x in cache]
        return sharding.length_split_decode(comm, new, *held, H, comm.rank == 0)

    return list(simulate(2, rank))


def by_batch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *cache: torch.Tensor) -> Any:
    def rank(comm: Comm) -> Any:
        new = sharding.Projected(*(x.chunk(2, -1)[comm.rank] for x in (q, k, v)))
        held = [x.chunk(2)[comm.rank].clone() for x in cache]
        return sharding.batch_split_decode(comm, new, *held, H)

    return list(simulate(2, rank))


def stationary(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> Any:
    def rank(comm: Comm) -> Any:
        along_x, along_yz = sharding.mesh(comm, 2)
        X, YZ = (along_x.rank, 2), (along_yz.rank, 2)
        own = sharding.rows(sharding.rows(x, *X), *YZ)
        first = [sharding.rows(sharding.columns(w, *YZ), *X) for w in (gate, up)]
        last = sharding.rows(sharding.columns(down, *X), *YZ)
        return sharding.stationary_mlp(along_x, along_yz, own, *first, last)

    return list(simulate(4, rank))


def experts(
    x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor, *held: torch.Tensor
) -> Any:
    def rank(comm: Comm) -> Any:
        own = [part.tensor_split(comm.size)[comm.rank] for part in (x, chosen, weights)]
        return expert_parallel(comm, *own, *(w.chunk(comm.size)[comm.rank] for w in held))

    return list(simulate(2, rank))


MLP = (8, 8), (12, 8), (12, 8), (8, 12)
STEP = (2, 4 * H), (2, 2 * H), (2, 2 * H), (2, 6, 2, H), (2, 6, 2, H)
KERNELS: dict[str, tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = {
    "rings": (rings, lambda: [n(7, 3)]),
    "MLPs": (mlps, lambda: [n(*shape) for shape in MLP]),
    "heads": (heads, lambda: [n(2, 5, 8), n(4 * H, 8), n(2 * H, 8), n(2 * H, 8), n(8, 4 * H)]),
    "a cache cut by length": (by_length, lambda: [n(*shape) for shape in STEP]),
    "a cache cut by sequence": (by_batch, lambda: [n(*shape) for shape in STEP]),
    "weights that stay": (stationary, lambda: [n(*shape) for shape in MLP]),
    "experts dealt out": (
        experts,
        lambda: [
            n(3, 6),
            torch.tensor([[0, 3], [0, 1], [3, 0]]),
            torch.rand(3, 2),
            *(n(4, *shape) for shape in ((7, 6), (7, 6), (6, 7))),
        ],
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_ranks_on_a_card_compute_what_they_compute_on_the_cpu(name: str) -> None:
    function, inputs = KERNELS[name]
    same_on_a_card(function, *inputs())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_says_on_a_card_what_one_process_says(layout: str) -> None:
    name = "moe" if layout == "experts" else "gqa"
    expected = [r.tokens for r in complete_batch(models.load(name, torch.float64), PROMPTS, 4)]

    def rank(comm: Comm) -> list[list[int]]:
        model = build(layout, CourseFile(name), comm, torch.float64, torch.device(CARD, 0))
        return [record.tokens for record in complete_batch(model, PROMPTS, 4)]

    assert list(simulate(3, rank)) == [expected] * 3


def over(backend: str, layout: str, folder: Path) -> str:
    """What torchrun prints with one rank."""
    asked = ["--nproc-per-node", "1", "-m", "twophase.parallel.generate", "--backend", backend]
    name = "moe" if layout == "experts" else "gqa"
    asked += ["--layout", layout, "--checkpoint", name, "--dtype", "fp32", "--tokens", "12"]
    own = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    # found from any folder, as an installed package is
    paths = [*(str(Path(path).resolve()) for path in sys.path if path)]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    done = subprocess.run(
        [*torchrun, *asked, "--prompt", "import"],
        capture_output=True, text=True, timeout=PATIENCE_S, cwd=folder,
        env={**os.environ, **own, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("layout", ["tensor", "stationary", "experts"])
def test_one_rank_over_nccl_says_what_one_process_says(layout: str, tmp_path: Path) -> None:
    model = models.load("moe" if layout == "experts" else "gqa")
    made = complete(model, encode("import"), 12).tokens
    assert over("nccl", layout, tmp_path).endswith(f"import{decode(made)}\n")


def test_one_rank_over_gloo_says_it_too(tmp_path: Path) -> None:
    made = complete(models.load("gqa"), encode("import"), 12).tokens
    assert over("gloo", "tensor", tmp_path).endswith(f"import{decode(made)}\n")
