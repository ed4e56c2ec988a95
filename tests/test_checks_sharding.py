"""What the checks of chapter 10 take for right is what the course's kernels do and its tracer
counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from exercise_tools import refused_by_a_fixed_case

from twophase.checks import registry
from twophase.checks.answer import LocalAnswer
from twophase.checks.judge import Bench
from twophase.checks.misconceptions import replaced
from twophase.checks.sharding import _layouts as layouts
from twophase.checks.sharding import (
    _logs,
    choose,
    heads,
    length,
    mlp,
    ring,
    summed,
    which_layout,
)
from twophase.kernels import sharding as kernels
from twophase.kernels.collectives import Comm, ring_all_reduce, simulate
from twophase.measure.collectives import Tracer
from twophase.measure.events import EventLog
from twophase.theory import messages, sharded_step
from twophase.theory.architecture import Architecture
from twophase.theory.links import Link
from twophase.theory.sharded_pass import Load, Pass


def test_the_ring_of_the_task_is_that_of_the_kernels() -> None:
    """The neighbors that the judge plays end with the sums; the kernel's ring has the same."""
    for case in ring.cases(random.Random(0)):
        data, rank = case.args
        n = len(data)
        sums = [sum(data[r][i] for r in range(n)) for i in range(n)]
        coming = iter(ring.messages(data)[(rank - 1) % n])
        found = ring.reference(data[rank], rank, lambda chunk, coming=coming: next(coming))
        whole = simulate(
            n, lambda comm, data=data: ring_all_reduce(comm, torch.cat(data[comm.rank]))
        )
        assert all(a.equal(b) for a, b in zip(found, sums, strict=True))
        assert torch.equal(torch.cat(found), whole[rank])


def test_the_mlp_of_the_task_is_that_of_the_kernels() -> None:
    for case in mlp.cases(random.Random(0)):
        n = case.args[-1]

        def run(comm: Comm, case: Any = case) -> tuple[torch.Tensor, torch.Tensor]:
            x, gate, up, down, bias, _, n = case.args
            parts = [kernels.columns(w.T, comm.rank, n) for w in (gate, up)]
            own = kernels.tensor_mlp(comm, x, *parts, kernels.rows(down.T, comm.rank, n), bias)
            task = mlp.reference(x, gate, up, down, bias, comm.rank, n, comm.all_reduce)
            return own, task

        for own, task in simulate(n, run):
            torch.testing.assert_close(own, task, rtol=1e-4, atol=1e-4)


def test_attention_of_the_task_is_that_of_the_kernels() -> None:
    """Projections that are the identity leave the task's queries, keys and values."""
    for case in heads.cases(random.Random(0))[:11]:
        q, k, v, w_o, _, n = case.args
        T, N, H = q.shape
        S, K, D = k.shape[0], k.shape[1], w_o.shape[1]
        if T != S:
            continue
        x = torch.cat([t.flatten(1) for t in (q, k, v)], 1)[None]  # [1, T, (N + 2 K) H]
        eye = torch.eye(x.shape[2])
        wq, wk, wv = eye.split([N * H, K * H, K * H])

        def run(comm: Comm, x: Any = x, w: Any = (wq, wk, wv, w_o.T), H: int = H) -> torch.Tensor:
            return kernels.tensor_attention(
                comm, x, kernels.head_parts(*w, H, comm.rank, comm.size), H
            )

        for rank, found in enumerate(simulate(n, run)):
            others = [heads.reference(q, k, v, w_o, r, n, lambda part: part) for r in range(n)]
            assert found.shape == (1, T, D), rank
            torch.testing.assert_close(found[0], sum(others), rtol=1e-4, atol=1e-4)


def test_what_all_ranks_of_a_cut_cache_bring_merges_to_the_whole() -> None:
    for case in length.cases(random.Random(0)):
        q, pieces, _ = case.args
        k, v = (torch.cat(t) for t in zip(*pieces, strict=True))
        out = length.own_part(q.double(), k.double(), v.double())
        whole = out[:, :-2] / out[:, -1:]
        parts = [length.own_part(q, *piece) for piece in pieces]
        torch.testing.assert_close(length.merged(parts), whole.float(), rtol=1e-4, atol=1e-4)
        ours = kernels.merged(parts)
        torch.testing.assert_close(ours, whole.float(), rtol=1e-4, atol=1e-4)


def test_each_fault_shows_and_the_right_layer_is_the_whole_one() -> None:
    (given,) = summed.expose()
    names = ("x", "w_in", "w_out", "bias")
    x, w_in, w_out, bias = (torch.tensor(given[name]).double() for name in names)
    whole = (x + torch.relu(x @ w_in) @ w_out + bias).expand(2, -1, -1)  # on both ranks
    torch.testing.assert_close(summed.together(summed.right, given), whole)
    for fault in (*summed.FAULTS.values(), summed.PRINTED):
        assert not torch.allclose(summed.together(fault, given), whole)


UNIT = [[1, 0], [0, 1]]
EXPOSE: dict[str, dict[str, Any]] = {
    "rank 0 alone has something to sum in the second row, so that it is wrong on rank 1": {
        "n": 2,
        "x": [[1, 1], [1, 0]],
        "w_in": UNIT,
        "w_out": UNIT,
        "bias": [1, 1],
    },
    "numbers of 64,000, wrong by 0.07": {
        "n": 8,
        "x": [[10] * 8] * 2,
        "w_in": [[10] * 8] * 8,
        "w_out": [[10] * 8] * 8,
        "bias": [0.01] * 8,
    },
    "wrong by 0.001": {
        "n": 2,
        "x": [[0.001], [0.001]],
        "w_in": [[1, 1]],
        "w_out": [[1], [1]],
        "bias": [0.001],
    },
}


@pytest.mark.parametrize("name", EXPOSE)
def test_what_is_wrong_by_as_much_as_the_task_says_is_exposed_on_whichever_rank(name: str) -> None:
    answer = {"expose": lambda: [EXPOSE[name]], "layer_rank": summed.right}
    verdict = Bench(registry.load("sharding-summed")).judge(LocalAnswer(answer))
    assert verdict.right, verdict.message


def test_what_is_wrong_by_less_is_not() -> None:
    nearly = {**EXPOSE["wrong by 0.001"], "bias": [0.0009]}
    assert not summed.shows("the bias counts on every rank", nearly)


def noted(n: int, function: Any) -> list[list[dict[str, Any]]]:
    """Each rank's events as the task of which_layout gives them, of layer 0."""
    logs = [EventLog() for _ in range(n)]
    simulate(n, lambda comm: function(Tracer(comm, logs[comm.rank])))
    names = ("op", "n_bytes", "sent_bytes")
    return [[{k: e[k] for k in names} | {"group": len(e["group"])} for e in log] for log in logs]


@pytest.mark.parametrize("label", ["tensor", "batch", "length"])
def test_logs_of_the_task_are_what_the_tracer_writes(label: str) -> None:
    m = _logs.model(random.Random(1), L=1, bytes=4, n=4)
    B, H, n = m["B"], m["H"], m["n"]
    x = torch.zeros(B, m["D"])

    def run(comm: Comm) -> None:
        new = kernels.Projected(*(torch.zeros(B, w * H // n) for w in (m["N"], m["K"], m["K"])))
        if label == "batch":
            caches = [torch.zeros(B // n, 2, m["K"], H) for _ in range(2)]
            kernels.batch_split_decode(comm, new, *caches, H)
        if label == "length":
            caches = [torch.zeros(B, 2, m["K"], H) for _ in range(2)]
            kernels.length_split_decode(comm, new, *caches, H, comm.rank == 0)
        for _ in range(2):
            comm.all_reduce(x)

    expected = [e for e in _logs.log(label, m) if e["layer"] == 0]
    for events in noted(n, run):
        mine = [{k: e[k] for k in ("op", "group", "sent_bytes")} for e in events]
        assert mine == [{k: e[k] for k in ("op", "group", "sent_bytes")} for e in expected]
        reductions = [e["n_bytes"] for e in events if e["op"] == "all_reduce"]
        assert reductions == [e["n_bytes"] for e in expected if e["op"] == "all_reduce"]


CUT: dict[str, Callable[[Pass, int], Load]] = {
    "tensor": lambda work, n: sharded_step.tensor(work, (n,)),
    "batch": lambda work, n: sharded_step.tensor(work, (n,), "batch"),
    "length": lambda work, n: sharded_step.tensor(work, (n,), "length"),
    "gathered": lambda work, n: sharded_step.gathered(work, (n,)),
    "replicas": sharded_step.replicas,
}


@pytest.mark.parametrize("name", layouts.LAYOUTS)
def test_the_layouts_to_choose_from_cost_what_theory_says(name: str) -> None:
    """But for norms and the vocabulary, which the task leaves out, and for the weights of copied KV
    heads."""
    for case in registry.load("sharding-choose").make_cases(0):
        model, workload, machine = case.args
        p = {**model, **workload, **machine}
        n = p["n_chips"]
        sizes = {k: model[k] for k in ("L", "D", "F", "N", "K", "H")}
        link = Link("exercise", machine["link_bytes_per_s"], machine["hop_s"])
        stored = [p["bytes"]] * 3  # weights, caches, activations
        work = Pass(Architecture("exercise", **sizes, V=1), p["B"], p["S"], 1, *stored)
        load = CUT[name](work, n)
        held, read, _ = layouts.loads(name, p)
        if name != "tensor" or n <= p["K"]:
            assert held == pytest.approx(load.held_bytes, rel=0.01), case.name
            assert read == pytest.approx(load.read_bytes, rel=0.01), case.name
        inside = [m for m in load.messages if m.what not in ("embedded tokens", "logits")]
        sending = messages.time_s(inside, link)
        assert layouts.sending_s(name, p) == pytest.approx(sending, rel=1e-3), case.name


def test_no_case_of_the_choice_is_decided_near_its_margin() -> None:
    for seed in range(4):
        for case in choose.cases(random.Random(seed)):
            model, workload, machine = case.args
            edges = (1.02, 1.1) if case.name.startswith("unseen") else (1.045, 1.055)
            assert choose.clear({**model, **workload, **machine}, *edges), case.name


def faults_layer_by_layer(turn: int) -> Callable[[_logs.Events, _logs.Model], str]:
    """Which fault the first layer with one has, or with a `turn` of -1 the last one."""

    def diagnose(events: _logs.Events, m: _logs.Model) -> str:
        for layer in range(m["L"])[::turn]:
            fault = which_layout.reference([e for e in events if e["layer"] == layer], m)
            if fault.startswith("reduced"):
                return fault
        return which_layout.reference(events, m)

    return diagnose


def ops_of_one_layer(at: int) -> Callable[..., Any]:
    """The kinds of op are those of the layer of the first event, or of the last one."""
    one = f'for e in inside if e["layer"] == inside[{at}]["layer"]'
    return replaced(which_layout.reference, {'{e["op"] for e in inside': f'{{e["op"] {one}'})


def wrong_of_one_layer(slip: Callable[[str], str]) -> Callable[[_logs.Events, _logs.Model], str]:
    """The right label, but that of a model of one layer is misread."""

    def diagnose(events: _logs.Events, m: _logs.Model) -> str:
        label = which_layout.reference(events, m)
        return slip(label) if m["L"] == 1 else label

    return diagnose


LAYOUT_READ_BY_LAYERS = {
    "the first fault": faults_layer_by_layer(1),
    "the last fault": faults_layer_by_layer(-1),
    "the first layer's ops": ops_of_one_layer(0),
    "the last layer's ops": ops_of_one_layer(-1),
    "one layer is whole": wrong_of_one_layer(lambda label: "tensor"),
    "one layer is never reduced in part": wrong_of_one_layer(
        lambda label: "tensor" if label == "reduced in part" else label
    ),
    "one layer is never reduced twice": wrong_of_one_layer(
        lambda label: "tensor" if label == "reduced twice" else label
    ),
    "one layer is no stage of a pipeline": wrong_of_one_layer(
        lambda label: "replicas" if label == "pipeline" else label
    ),
    "one layer is not cut by sequence": wrong_of_one_layer(
        lambda label: "length" if label == "batch" else label
    ),
}


@pytest.mark.parametrize("name", LAYOUT_READ_BY_LAYERS)
def test_a_fixed_log_refuses_labels_of_single_layers(name: str) -> None:
    refused_by_a_fixed_case("sharding-which_layout", {"diagnose": LAYOUT_READ_BY_LAYERS[name]})


SUM = "all_reduce(part) + bias"
INNER = "functional.silu(x @ w_gate[:, own]) * (x @ w_up[:, own])"


def test_an_mlp_is_summed_once_on_one_rank_as_well() -> None:
    alone = replaced(mlp.reference, {SUM: f"({SUM.split(' +')[0]} if n > 1 else part) + bias"})
    refused_by_a_fixed_case("sharding-mlp", {"mlp_rank": alone})


def test_an_mlp_may_compute_more_than_it_brings() -> None:
    """The task asks what a rank brings, not what it looks at."""
    whole = "(functional.silu(x @ w_gate) * (x @ w_up))[:, own]"
    functions = {"mlp_rank": replaced(mlp.reference, {INNER: whole})}
    assert Bench(mlp.EXERCISE).judge(LocalAnswer(functions)).right
