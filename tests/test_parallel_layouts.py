"""Every layout says what one process says, on sizes that do not divide, and sends to the byte what
the theory says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_parallel_tensor import odd, random_model

from twophase import models
from twophase.kernels.collectives import Comm, RankError, simulate
from twophase.measure.collectives import Tracer, sent_bytes
from twophase.measure.events import EventLog
from twophase.models.generate import complete_batch, encode
from twophase.models.mixture_of_experts import Experts
from twophase.parallel.combined import tensor_pipeline, tensor_replicas
from twophase.parallel.formulas import FORMULAS
from twophase.parallel.formulas import sent_bytes as told_bytes
from twophase.parallel.layouts import LAYOUTS, build
from twophase.parallel.pipeline import Pipeline
from twophase.parallel.run import run_ranks
from twophase.parallel.shares import sizes
from twophase.parallel.stationary import WeightStationary
from twophase.parallel.weights import CourseFile, InMemory, Source
from twophase.theory import messages
from twophase.theory.sizes import MixtureOfExperts

PROMPTS = [encode(text) for text in ("def read(path):", "import", "x = [", "#", "for i in")]
BLOCK = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6, 5]] * 5)


def both(
    make: Callable[[Comm], Any], whole: Any, n: int, prompts: list[list[int]] = PROMPTS
) -> None:
    """Tokens of texts of several lengths, and all logits of a block of as many sequences, are those
    of one process."""
    block = BLOCK[:1].repeat(len(prompts), 1)  # [prompts, T]

    def run(model: Any) -> tuple[list[list[int]], torch.Tensor]:
        with torch.inference_mode():
            logits = model(block)
        return [record.tokens for record in complete_batch(model, prompts, 4)], logits

    tokens, logits = run(whole)
    for found, found_logits in simulate(n, lambda comm: run(make(comm))):
        assert found == tokens
        # fp64, but norms, merges of partial attention and sums of squares are fp32
        torch.testing.assert_close(found_logits, logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        *((layout, "gqa") for layout in LAYOUTS if layout not in ("tensor", "experts")),
        ("batch-split", "local_global"),
        ("length-split", "sliding"),
        ("length-split", "mqa"),
        ("sequence", "cross_layer"),
        ("stationary", "local_global"),
        ("pipeline", "ssm_attention"),
        ("replicas", "mla"),
        ("tensor-replicas", "mla"),
        ("tensor-pipeline", "mla"),
        ("experts", "moe"),
    ],
)
def test_every_layout_says_the_same_on_ranks_that_divide_nothing(layout, name):
    source, whole = CourseFile(name), models.load(name, torch.float64)
    both(lambda comm: build(layout, source, comm, torch.float64), whole, 3)


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "experts"])
@pytest.mark.parametrize("n", [4, *(pytest.param(n, marks=pytest.mark.more) for n in (2, 8))])
def test_every_layout_takes_odd_sizes_on_2_4_and_8_ranks(layout, n):
    kinds = ("gqa", "sliding") * (n // 2)  # a layer for every stage of a pipeline
    config = odd(L=len(kinds), attention=kinds, window=5, score_cap=4.0)
    model = random_model(config)
    prompts = PROMPTS * 2 if n == 8 else PROMPTS
    both(lambda comm: build(layout, InMemory(model), comm), model, n, prompts)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_experts_that_are_dealt_out_unevenly_say_the_same(n):
    model = random_model(odd(moe=MixtureOfExperts(E=5, k=2, F=7, n_shared=1, n_dense_layers=1)))
    both(lambda comm: build("experts", InMemory(model), comm), model, n)


@pytest.mark.parametrize(("n", "X"), [(4, 1), (4, 4), (6, 2), (6, 3), (8, 2), (8, 4)])
def test_every_mesh_says_the_same(n, X):
    model = random_model(odd(K=2, D=29, F=23, qkv_bias=False, gated_mlp=X != 3))
    both(lambda comm: WeightStationary(InMemory(model), comm, X=X), model, n)


@pytest.mark.parametrize("layout", [tensor_pipeline, tensor_replicas])
@pytest.mark.parametrize(("n", "Y"), [(4, 4), (6, 2), (6, 3)])
def test_every_size_of_a_group_says_the_same(layout, n, Y):
    model = random_model(odd(L=3, attention=("gqa", "sliding", "gqa"), window=5))
    both(lambda comm: layout(InMemory(model), comm, Y=Y), model, n)


@pytest.mark.parametrize(
    "more",
    [
        {"kv_source": (0, 0, 2, 2)},
        {"widths": tuple({"F": 9 + i, "N": 4 + 4 * i, "K": 4} for i in range(4))},
        {"moe": MixtureOfExperts(E=3, k=2, F=7, n_dense_layers=3)},
    ],
    ids=lambda more: next(iter(more)),
)
def test_a_stage_has_the_sources_widths_and_experts_of_its_own_layers(more):
    model = random_model(odd(L=4, **more))
    both(lambda comm: build("pipeline", InMemory(model), comm), model, 2)


def test_a_pipeline_of_whole_batches_has_the_bits_of_one_process():
    whole, source = models.load("gqa"), CourseFile("gqa")
    with torch.inference_mode():
        for logits in simulate(3, lambda comm: Pipeline(source, comm, n_microbatches=1)(BLOCK)):
            assert torch.equal(logits, whole(BLOCK))


@pytest.mark.parametrize(
    "layout",
    ["stationary", *(pytest.param(name, marks=pytest.mark.more) for name in LAYOUTS)],
)
def test_every_layout_says_the_same_on_processes(layout):
    source = CourseFile("moe" if layout == "experts" else "gqa")

    def rank(comm: Comm) -> list[list[int]]:
        model = build(layout, source, comm, torch.float64)
        return [record.tokens for record in complete_batch(model, PROMPTS, 3)]

    whole = models.load(source.name, torch.float64)
    expected = [record.tokens for record in complete_batch(whole, PROMPTS, 3)]
    assert run_ranks(4, rank) == [expected] * 4


def test_a_rank_draws_no_weights_that_it_then_reads(monkeypatch):
    """A draw on the meta device imports torch's compiler: more than a second in every rank."""

    def drawn(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("a rank draws weights")

    for name in ("_no_grad_normal_", "_no_grad_uniform_"):
        monkeypatch.setattr(torch.nn.init, name, drawn)
    for layout in LAYOUTS:
        source = CourseFile("moe" if layout == "experts" else "gqa")
        simulate(2, lambda comm: build(layout, source, comm) and None)  # noqa: B023


def traced(layout: str, source: Source, n: int, B: int, T: int, n_new: int) -> EventLog:
    def rank(comm: Comm) -> EventLog:
        tracer = Tracer(comm)
        prompts = [[(7 * b + 3 * t) % 250 for t in range(T)] for b in range(B)]
        complete_batch(build(layout, source, tracer), prompts, n_new)
        return tracer.log

    return EventLog.merged(simulate(n, rank))


@pytest.mark.parametrize("layout", FORMULAS)
@pytest.mark.parametrize("n", [2, 4])
def test_every_layout_sends_what_the_theory_says_to_the_byte(layout, n):
    B, T, n_new, config = 4, 4, 3, CourseFile("gqa").config
    log = traced(layout, CourseFile("gqa"), n, B, T, n_new)
    for phase, n_tokens, passes in (("prefill", T, 1), ("decode", 1, n_new - 1)):
        found = sent_bytes(e for e in log if e["phase"] == phase)
        assert found == passes * told_bytes(layout, config, B, n_tokens, n)


def test_experts_send_the_visits_that_the_router_chose_to_the_byte():
    n, B, T = 2, 4, 8
    source, c = CourseFile("moe"), CourseFile("moe").config
    assert c.moe is not None
    log = traced("experts", source, n, B, T, 1)
    chosen: list[torch.Tensor] = []
    whole = models.load("moe")
    for module in whole.modules():
        if isinstance(module, Experts):
            module.register_forward_pre_hook(lambda m, args: chosen.append(args[1]))
    with torch.inference_mode():
        whole(torch.tensor([[(7 * b + 3 * t) % 250 for t in range(T)] for b in range(B)]))
    owner = torch.repeat_interleave(torch.arange(n), torch.tensor(sizes(c.moe.E, n)))  # of experts
    lives = torch.arange(n).repeat_interleave(B // n * T)[:, None]  # of tokens
    away = sum(int((owner[experts] != lives).sum()) for experts in chosen)
    rest = messages.repeated(messages.visits_part(c.moe.E, (n,)), c.L)
    rest += messages.logits_part(B, c.V, (n,))
    assert sent_bytes(log) == 2 * away * c.D * 4 + n * messages.sent_bytes(rest)
    # a router that chose evenly would send so much; this one is within a half of it
    even = n * messages.sent_bytes(messages.expert_part(B * T, c.D, c.moe.k, (n,), 4)) * c.L
    assert away * 2 * c.D * 4 == pytest.approx(even, rel=0.5)


REFUSED = {
    ("batch-split", "mla"): "this layout moves keys and values of causal attention",
    ("sequence", "linear"): "this layout moves keys and values of causal attention",
    ("length-split", "diffusion"): "this layout moves keys and values of causal attention",
    ("experts", "gqa"): "has none to deal out",
    ("stationary", "moe"): "this model has experts: take --layout tensor",
    ("tensor", "ssm"): 'layers of the kind "ssm" are not divided here',
}


@pytest.mark.parametrize(("layout", "name"), REFUSED)
def test_what_a_layout_cannot_cut_is_refused_in_a_sentence(layout, name):
    with pytest.raises(RankError, match=REFUSED[layout, name]):
        simulate(2, lambda comm: build(layout, CourseFile(name), comm))


@pytest.mark.parametrize(
    ("layout", "name", "n", "says"),
    [
        ("pipeline", "gqa", 5, "4 layers cannot be dealt out to so many ranks"),
        ("pipeline", "cross_layer", 4, "layers 1 to 1 read the keys of layer 0"),
        ("replicas", "gqa", 3, "2 sequences cannot be dealt out to 3 ranks"),
        ("batch-split", "gqa", 3, "2 sequences cannot be dealt out to 3 ranks"),
    ],
)
def test_too_many_ranks_are_refused_in_a_sentence(layout, name, n, says):
    def rank(comm: Comm) -> None:
        complete_batch(build(layout, CourseFile(name), comm), PROMPTS[:2], 2)

    with pytest.raises(RankError, match=says):
        simulate(n, rank)


def test_there_is_no_other_layout_and_no_crooked_mesh():
    with pytest.raises(RankError, match=r"the layouts are tensor, batch-split, .*; got 'ring'"):
        simulate(1, lambda comm: build("ring", CourseFile("gqa"), comm))
    with pytest.raises(RankError, match="4 ranks form no groups of 3: take a divisor"):
        simulate(4, lambda comm: tensor_replicas(CourseFile("gqa"), comm, Y=3))
    with pytest.raises(RankError, match="4 ranks form no mesh of 3 by others"):
        simulate(4, lambda comm: WeightStationary(CourseFile("gqa"), comm, X=3))


def test_a_cache_that_is_cut_forgets_what_it_is_told_to():
    whole = models.load("gqa", torch.float64)
    first, second = torch.tensor([[5, 6, 7, 8], [1, 2, 3, 4]]), torch.tensor([[9, 9], [9, 9]])

    def run(model: Any) -> torch.Tensor:
        cache = model.new_cache(2, 8)
        with torch.inference_mode():
            model(first, cache, n_new=[4, 2])
            cache.truncate([3, 1])
            model(torch.tensor([[0], [0]]), cache, n_new=[0, 1])
            cache.release(0)
            cache.admit()
            return model(second, cache)

    expected = run(whole)
    for layout in ("batch-split", "length-split"):
        source = CourseFile("gqa")
        for found in simulate(2, lambda comm: run(build(layout, source, comm, torch.float64))):  # noqa: B023
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
