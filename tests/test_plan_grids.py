"""`twophase plan --tp --dp --ep --pp`: ways of sharing together, in a plan that does not contradict
itself, nor the layouts that it is made of."""

import json
import math
from collections.abc import Callable
from dataclasses import astuple, replace
from statistics import median

import pytest
import typer
from draws import draws
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from twophase.cli.plan import plan
from twophase.measure import serving_runs
from twophase.theory import catalog, expected, messages
from twophase.theory.architecture import Architecture
from twophase.theory.grid import Grid
from twophase.theory.messages import Collective
from twophase.theory.plan import deployment, plan_deployment
from twophase.theory.sharded_grid import combined, crossings, in_machines
from twophase.theory.sharded_pass import Pass
from twophase.theory.workload import Workload

app = typer.Typer()
app.command()(plan)
runner = CliRunner()
H100 = catalog.hardware("h100")
ROOMY = replace(H100, hbm_bytes=10**24)
BELOW = 1 + 1e-9  # sums of floats in another order
PURE = {"tensor": Grid(tp=8), "pipeline": Grid(pp=8), "replicas": Grid(dp=8)}


def as_json(*arguments: str) -> dict:
    result = runner.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.stderr
    found: dict = json.loads(result.stdout)
    return found


@st.composite
def grids(draw: st.DrawFn) -> Grid:
    tp, dp, pp = (draw(st.sampled_from([1, 2, 3, 4, 8, 16])) for _ in range(3))
    inside = [ep for ep in range(1, tp + 1) if tp % ep == 0]
    across = [tp * sharing for sharing in range(1, dp + 1) if dp % sharing == 0]
    return Grid(tp, dp, draw(st.sampled_from(inside + across)), pp)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Architecture, Workload]:
    """A model, and a workload on a grid that can cut it."""
    arch, grid = draw(st.sampled_from(list(catalog.MODELS.values()))), draw(grids())
    n_output = draw(st.none() | st.integers(1, 300))
    w = Workload(
        batch=draw(st.integers(1, 300)),
        context=draw(st.integers(1, 20_000)) + (n_output or 0),
        n_output=n_output,
        n_chips=grid.n_chips,
        weights=draw(st.sampled_from(["bf16", "int8", "int4"])),
        kv=draw(st.sampled_from(["bf16", "fp8"])),
        grid=grid,
        link=draw(st.sampled_from([None, "nvlink", "infiniband", "v5e ici"])),
        between=draw(st.sampled_from([None, "infiniband", "ethernet"])),
        skew=draw(st.sampled_from([1, 1.5])) if grid.ep > 1 else 1,
        found_share=draw(st.sampled_from([0, 0, 0.3, 1])),
    )
    try:
        plan_deployment(arch, ROOMY, w)
    except ValueError:
        assume(False)
    return arch, w


@pytest.mark.parametrize("layout", [*PURE, "experts"])
@pytest.mark.parametrize("model", ["llama-3-70b", "deepseek-v3", "gpt-oss-120b", "gemma-2-9b"])
def test_a_grid_of_one_kind_is_the_layout_of_that_name(layout: str, model: str) -> None:
    arch = catalog.model(model)
    if layout == "experts" and arch.moe is None:
        return
    grid = PURE.get(layout, Grid(dp=8, ep=8))
    w = Workload(20, 3000, n_output=100, n_chips=8, weights="fp8", compute="fp8")
    names, combinations = (
        plan_deployment(arch, ROOMY, replace(w, **how)).as_dict()  # type: ignore[arg-type]
        for how in ({"layout": layout}, {"grid": grid})
    )
    for name, value in names.items():
        if isinstance(value, int | float) and "chips_needed" not in name:  # copies as given
            assert combinations[name] == pytest.approx(value, rel=1e-12), name


def test_tokens_that_travel_in_eight_bits_send_half_and_a_scale() -> None:
    asked = ["--model", "deepseek-v3", "--hardware", "h200", "--weights", "fp8", "--tp", "2"]
    asked += ["--ep", "16", "--batch", "128", "--context", "4096"]
    wide, narrow = (as_json(*asked, "--dispatch", way) for way in ("bf16", "fp8"))
    values = 58 * 8 * 8 * 7168 * 15 / 16  # layers, tokens of a chip, experts, width; 1 of 16 stays
    saved = wide["step_sent_bytes"] - narrow["step_sent_bytes"]
    assert saved == values * (2 - 1 - 4 / 128)
    assert narrow["step_send_s"] < wide["step_send_s"]
    assert any("in fp8, and back in bf16" in line for line in narrow["assumptions"])


def test_deepseek_on_two_machines_by_hand() -> None:
    """Eight copies of attention over two chips each, 16 experts of 256 on a chip: parameters by
    its config."""
    found = as_json(
        "--model", "deepseek-v3", "--hardware", "h200", "--weights", "fp8", "--embeddings", "fp8",
        "--tp", "2", "--ep", "16", "--batch", "128", "--context", "4096",
    )  # fmt: skip
    assert found["workload"]["grid"] == {"tp": 2, "dp": 8, "ep": 16, "pp": 1}
    D, N, R, rope, nope, v, q = 7168, 128 // 2, 512, 64, 128, 128, 1536
    attention = D * q + q * N * (nope + rope) + D * (R + rope) + R * N * (nope + v) + N * v * D
    expert = 3 * D * 2048
    norms = 61 * (2 * D + q + R) + D
    moe = 58 * ((D + 1) * 256 + 16 * expert + expert // 2)  # 16 experts; half of the shared one
    dense = 3 * 3 * D * 18432 // 2
    total = 61 * attention + moe + dense + norms + 2 * 129280 // 2 * D
    assert found["weight_bytes"] == total
    assert found["cache_bytes"] == 16 * 61 * (R + rope) * 2 * 4096  # whole on both chips of a copy
    # two sums a layer over two chips; 8 of a copy's 16 tokens travel from each, 8 copies of each
    summed = 2 * (2 * 61 + 1) * 0.5 * 16 * D * 2 + 0.5 * 16 * 129280 * 4
    travel = 58 * 2 * 8 * 8 * D * 2 * 15 / 16
    assert found["step_sent_bytes"] == pytest.approx(summed + travel)
    near, far = 58 * 2 * 8 * 8 * D * 2 * 7 / 16, 58 * 2 * 8 * 8 * D * 2 * 8 / 16
    hops = ((2 * 61 + 1) * 2 + 1) * 0.6e-6 + 58 * 2 * (7 * 0.6e-6 + 1 * 2.7e-6)
    seconds = (summed + near) / 450e9 + far / 50e9 + hops
    assert found["step_send_s"] == pytest.approx(seconds)


def test_stages_of_tensor_parallel_chips_by_hand() -> None:
    """Llama-3-70B, two machines of eight: a stage of 40 layers on each; the last has the head."""
    found = as_json("--model", "llama-3-70b", "--tp", "8", "--pp", "2", "--batch", "16")
    layer = (2 * 64 + 2 * 8) * 128 * 8192 + 3 * 8192 * 28672
    stage = 40 * (layer // 8 + 2 * 8192) + 128256 // 8 * 8192 + 8192
    assert found["weight_bytes"] == 2 * stage
    cache = 40 * 2 * 128 * 2 * 1024  # one KV head on each chip
    assert found["cache_bytes"] == 16 * cache
    assert found["step_bytes"] == pytest.approx(2 * (2 * stage + 8 * cache))
    last = 2 * 40 * 2 * 7 / 8 * 8 * 8192 * 2 + 7 / 8 * 8 * 128256 * 4  # sums, logits of eight
    assert found["step_sent_bytes"] == pytest.approx(2 * last + 2 * 8 * 8192 * 2)
    hops = 2 * (80 * 2 * 7 + 7) * 0.6e-6
    handed = 2 * (8 * 8192 * 2 / 50e9 + 2.7e-6)  # both ways leave a machine
    assert found["step_send_s"] == pytest.approx(2 * last / 450e9 + hops + handed)


def test_only_the_last_stage_computes_logits() -> None:
    """Stages of 27, 27 and 26 layers: the last and its head take the longest."""
    p = Pass(catalog.model("llama-3-70b"), 6, 1)
    layer = (2 * 64 + 2 * 8) * 128 * 8192 + 3 * 8192 * 28672
    one = 26 * (2 * layer + 4 * 64 * 128) + 2 * 128256 * 8192
    assert combined(p, Grid(pp=3)).flops == 3 * 2 * one


@draws(25)
@given(asked())
def test_all_chips_together_hold_the_model_and_do_no_more_than_they_can(asked) -> None:
    arch, w = asked
    found = plan_deployment(arch, ROOMY, w)
    m, step, service, e = found.memory, found.step, found.service, found.expected
    assert step is not None
    assert service is not None
    assert e is not None
    one = plan_deployment(arch, ROOMY, replace(w, grid=None, link=None, between=None, skew=1,
                                               n_chips=1))  # fmt: skip
    # the fullest chip may be the one with the embedding, and another have more of the cache
    held = one.memory.weight_bytes + one.memory.cache_bytes
    assert w.n_chips * (m.weight_bytes + m.cache_bytes) >= held / BELOW
    assert one.step is not None
    assert w.n_chips * step.step_flops >= one.step.step_flops / BELOW
    assert step.step_memory_s <= step.step_time_s * BELOW
    assert step.step_time_s <= step.step_time_sum_s * BELOW
    assert e.expected_tpot_s >= e.tpot_floor_s / BELOW
    assert e.expected_ttft_s >= e.ttft_floor_s / BELOW
    if w.n_output is None:
        return
    flops = float(arch.prefill_flops(1, w.prompt, head_at_last_only=True))
    if w.found:
        flops -= float(arch.prefill_flops(1, w.found, head_at_last_only=True))
    flops += (w.n_output - 1) * float(arch.decode_step_flops(1, w.prompt))
    peak = w.n_chips * H100.peak_flops_per_s("bf16")
    assert e.requests_ceiling_per_s * flops <= peak * BELOW
    assert e.expected_requests_per_s <= e.requests_ceiling_per_s * BELOW
    assert service.requests_per_s * flops <= peak * BELOW
    assert service.tokens_per_s <= service.ceiling_tokens_per_s * BELOW


@draws(12)
@given(asked(), st.floats(1, 50))
def test_more_bandwidth_or_less_skew_is_never_slower(asked, factor: float) -> None:
    arch, w = asked
    w = replace(w, link="nvlink", between="ethernet")
    wide = replace(ROOMY, hbm_bytes_per_s=factor * ROOMY.hbm_bytes_per_s)
    base = plan_deployment(arch, ROOMY, w)
    better = [
        plan_deployment(arch, wide, w),
        plan_deployment(arch, ROOMY, replace(w, between="infiniband")),
        plan_deployment(arch, ROOMY, replace(w, link="nvlink 5")),
        plan_deployment(arch, ROOMY, replace(w, skew=1)),
        plan_deployment(arch, ROOMY, replace(w, found_share=1)),
    ]
    assert base.step is not None
    assert base.expected is not None
    for one in better:
        assert one.step is not None
        assert one.expected is not None
        assert one.step.step_time_s <= base.step.step_time_s * BELOW
        assert one.expected.expected_tpot_s <= base.expected.expected_tpot_s * BELOW
        assert one.expected.expected_ttft_s <= base.expected.expected_ttft_s * BELOW


@draws(60)
@given(
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]),
    st.integers(1, 300),
    st.none() | st.integers(1, 72),
)
def test_what_goes_in_stages_is_as_much_as_in_one_piece(kind: str, n: int, machine) -> None:
    whole = Collective(kind, 3e6, (n,), "x", 5)
    parts = in_machines(whole, machine)
    assert messages.sent_bytes(parts) == pytest.approx(whole.sent_bytes)
    assert all(m.n_chips <= machine for m in parts if not m.between and machine)
    assert machine is None or any(m.between for m in parts) == (n > machine)


@pytest.mark.parametrize(
    ("stage", "n_stages", "machine", "leave"),
    [(8, 2, 8, 2), (4, 2, 8, 0), (2, 8, 8, 2), (16, 3, 8, 3), (8, 4, None, 0), (3, 4, 8, 3)],
)
def test_how_many_stages_hand_on_to_another_machine(stage, n_stages, machine, leave) -> None:
    assert crossings(stage, n_stages, machine) == leave


def test_a_busier_chip_reads_computes_and_sends_more_and_nothing_else_changes() -> None:
    p = Pass(catalog.model("deepseek-v3"), 256, 4096)
    even, busy = (combined(p, Grid(dp=8, ep=8), skew=s) for s in (1, 3))
    expert = 58 * 3 * 7168 * 2048
    touched = [32 * (1 - (1 - s * 8 / 256) ** 256) for s in (1, 3)]
    more = (touched[1] - touched[0]) * expert * 2
    assert busy.weight_read_bytes - even.weight_read_bytes == pytest.approx(more)
    assert busy.flops - even.flops == pytest.approx(2 * 2 * 256 * 8 / 8 * expert)
    assert busy.sent_bytes == pytest.approx(3 * even.sent_bytes)
    assert (busy.held_bytes, busy.cache_read_bytes) == (even.held_bytes, even.cache_read_bytes)


@draws(40)
@given(grids(), st.integers(1, 40))
def test_groups_of_experts_cover_the_chips_of_a_stage(grid: Grid, n: int) -> None:
    copies = grid.dp // grid.sharing
    assert copies * grid.ep * grid.expert_columns == grid.tp * grid.dp
    assert astuple(Grid.completed(None, None, n, None)) == (1, n, n, 1)
    assert astuple(Grid.completed(n, None, None, None)) == (n, 1, 1, 1)


BAD = [
    (["llama-3-70b", "--tp", "8", "--ep", "8"], "llama-3-70b has no experts to deal out"),
    (["llama-3-70b", "--tp", "0"], "--tp must be a whole number from 1"),
    (["llama-3-70b", "--tp", "8", "--layout", "tensor"], "either a layout or --tp"),
    (["llama-3-70b", "--tp", "8", "--chips", "16"], "tp 8 takes 8 chips, but there are 16"),
    (["llama-3-70b", "--tp", "8", "--split-cache", "evenly"], "plans without a layout"),
    (["llama-3-70b", "--tp", "8", "--chips", "auto"], "--chips auto finds the chips of a copy"),
    (["mixtral-8x7b", "--tp", "8", "--ep", "8", "--dispatch", "fp8"], "experts of other copies"),
    (["mixtral-8x7b", "--ep", "8", "--dispatch", "fp4"], "--dispatch must be bf16 or fp8"),
    (["llama-3-70b", "--skew", "2"], "go with --tp"),
    (["llama-3-70b", "--between", "ethernet"], "go with --tp"),
    (["llama-3-70b", "--tp", "8", "--between", "string"], "Unknown link 'string'"),
    (["llama-3-70b", "--pp", "81"], "take at most 80 chips"),
    (["mixtral-8x7b", "--ep", "16"], "has 8 experts, which cannot be dealt out to 16"),
    (["mixtral-8x7b", "--tp", "4", "--ep", "6"], "Experts in 6 groups do not divide"),
    (["mixtral-8x7b", "--tp", "2", "--dp", "3", "--ep", "4"], "Experts in 4 groups"),
    (["mixtral-8x7b", "--ep", "4", "--skew", "5"], "from 1 to 4 for 8 experts"),
    (["mixtral-8x7b", "--ep", "4", "--skew", "0.5"], "skew must be 1 or more"),
    (["llama-3-70b", "--tp", "8", "--hardware", "mi300x"], "what joins MI300X"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(a)[:50] for a, _ in BAD])
def test_what_cannot_be_shared_ends_in_one_sentence(arguments, says) -> None:
    result = runner.invoke(app, ["--model", *arguments])
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_the_table_and_the_report_say_how_chips_share_and_over_what() -> None:
    arguments = ["--model", "deepseek-v3", "--hardware", "h200", "--weights", "fp8", "--tp", "16"]
    arguments += ["--dp", "2", "--ep", "32", "--batch", "33", "--skew", "1.5"]
    table = " ".join(runner.invoke(app, arguments).stdout.split())
    report = " ".join(runner.invoke(app, [*arguments, "--markdown"]).stdout.split())
    for part in (
        "layout tp 16 dp 2 ep 32",
        "NVLink 4: 450 GB/s and 0.6 us a hop inside a machine of 8; InfiniBand NDR between",
        "whole experts dealt out to 32, shared by 2 copies",
        "get 1.5 times an even share",
        "latents whole on each",
        "33 sequences are no multiple of 2",
        "sums between machines in every layer",
    ):
        assert part in table
        assert part in report


def test_auto_keeps_copies_and_stages_and_takes_the_fewest_chips_of_a_copy() -> None:
    asked = ["--model", "llama-3-70b", "--pp", "2", "--batch", "64", "--context", "8192"]
    found = as_json(*asked, "--chips", "auto")
    needed = found["workload"]["n_chips"]
    assert found["workload"]["grid"] == {"tp": needed // 2, "dp": 1, "ep": 1, "pp": 2}
    fewer = [*asked, "--tp", str(needed // 2 - 1)]
    refused = runner.invoke(app, [*fewer, "--json"])
    assert refused.exit_code == 1
    offered = json.loads(refused.stdout)["would_fit"]
    assert {"n_chips": needed, "grid": found["workload"]["grid"]} in offered
    assert f"as tp {needed // 2} pp 2" in runner.invoke(app, fewer).stdout


def test_a_prompt_on_a_grid_costs_what_the_pass_says() -> None:
    arch, grid = catalog.model("llama-3-8b"), Grid(tp=2, pp=2)
    w = Workload(4, 2100, n_prompt=2000, n_output=100, n_chips=4, grid=grid, found_share=0.25)
    found = plan_deployment(arch, ROOMY, w)
    prompt = combined(Pass(arch, 1, 2000, 1500), grid)
    assert found.service is not None
    assert found.service.ttft_s == pytest.approx(prompt.step_s(H100, catalog.link("nvlink")))
    again = math.prod([32, 2, 8, 128, 2, 500]) / 4 * 2  # keys and values found, both stages' turns
    assert prompt.cache_read_bytes == pytest.approx(again)


def test_what_is_expected_of_grids_misses_measured_runs_no_more_than_of_plans_without() -> None:
    """The runs do not say how their chips share a model: dense ones are tensor parallel in all
    likelihood, experts in one of two ways."""
    runs, fit = serving_runs.read(), expected.fitted()

    def missed(kind: str, grid: Callable[[int], Grid]) -> float:
        ratios = []
        for run in runs[::5]:
            d, shared = run.deployment, grid(run.n_chips)
            if expected.kind(d) == kind:
                w = replace(d.w, grid=shared, n_chips=shared.n_chips, split_cache="heads")
                found = expected.step_tpot_s(deployment(d.arch, d.chip, w), fit.overheads)
                ratios.append(abs(found / run.tpot_s - 1))
        return median(ratios)

    assert missed("dense", lambda n: Grid(tp=n)) < fit.held_out["none"]["dense"] * 1.2
    ways = (lambda n: Grid(tp=min(n, 8), dp=max(1, n // 8), ep=n), lambda n: Grid(dp=n, ep=n))
    assert all(missed("experts", way) < fit.held_out["none"]["experts"] * 1.5 for way in ways)


def test_what_is_expected_has_a_layouts_messages_once() -> None:
    """In what a layer costs in the runs, or as long as they take if that is longer."""
    arch, chip = catalog.model("llama-3-70b"), catalog.hardware("h100")

    def of(link: str | None) -> tuple[float, float, float]:
        w = Workload(8, 1200, n_prompt=1000, n_output=200, n_chips=8, grid=Grid(tp=8), link=link)
        found = plan_deployment(arch, chip, w)
        assert found.step is not None
        assert found.expected is not None
        assert found.step.step_send_s is not None
        work = max(found.step.step_memory_s, found.step.step_compute_s)
        return found.expected.expected_tpot_s, found.step.step_send_s, work

    near, send, work = of("nvlink")
    own = expected.fitted().overheads
    layers = 80 * (own.layer_s + 8 * own.layer_s_per_sequence)
    assert send < layers
    assert near < work + layers + 0.02  # and the prompts of others
    far, slow, work = of("ethernet")
    assert slow > layers
    assert far > 0.99 * (work + slow)
    assert far - near > slow - layers
