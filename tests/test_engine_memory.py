"""What an engine sets aside beside weights and caches, held against what engines reported."""

import json
from dataclasses import asdict, replace

import pytest
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from twophase.cli.main import build
from twophase.measure import cache_reports
from twophase.measure.cache_reports import Report
from twophase.theory import catalog, engine_memory
from twophase.theory.engine_memory import Limits, chips_for_engine
from twophase.theory.expected import in_several_machines
from twophase.theory.grid import Grid
from twophase.theory.plan import deployment, plan_deployment
from twophase.theory.workload import Workload


@pytest.fixture(scope="module")
def reports() -> list[Report]:
    return cache_reports.read()


def test_the_constants_and_their_misses_are_those_that_the_reports_give(
    reports: list[Report],
) -> None:
    assert len({r.address for r in reports}) >= 6
    assert all("." in r.address and "/" in r.address for r in reports)
    stored, found = asdict(engine_memory.fitted()), asdict(cache_reports.fit_all(reports))
    for name, value in stored.items():
        assert found[name] == pytest.approx(value, rel=1e-3), name
    assert stored["missed_of_cache"] < 0.08
    assert stored["missed_of_usable"] < 0.05
    assert stored["missed_of_cache"] < stored["missed_without"]


def test_a_report_twice_as_far_off_moves_what_is_said_of_the_misses(reports: list[Report]) -> None:
    worse = [replace(r, cache_bytes=0.6 * r.cache_bytes) for r in reports]
    found = cache_reports.fit_all(worse)
    assert found.missed_of_cache > 0.08


def test_qwen3_235b_on_four_h100_keeps_half_of_what_memory_could() -> None:
    """vLLM said 178,880 tokens (github.com/vllm-project/vllm/issues/21348); it is in the fit."""
    w = Workload(n_chips=4, weights="fp8", compute="fp8")
    memory = plan_deployment(catalog.model("qwen3-235b-a22b"), catalog.hardware("h100"), w).memory
    assert memory.expected_cache_tokens == pytest.approx(178_880, rel=0.05)
    assert memory.cache_tokens_ceiling == 369_774
    own = engine_memory.fitted()
    chunk = 8192 * (2 * 4096 + 8 * (4096 + 1536 / 4)) * 2
    logits = 1024 * 151_936 * own.logit_bytes
    by_hand = max(chunk, logits) + own.runtime_bytes + own.messages_bytes
    assert memory.engine_bytes == pytest.approx(by_hand)


def test_a_dense_chunk_holds_the_stream_twice_and_an_mlp_thrice() -> None:
    arch = catalog.model("llama-3-8b")
    held = engine_memory.step_activation_bytes(arch, 2, 1000)
    assert held == 1000 * (2 * 4096 + 3 * 14336 / 2) * 2
    d = deployment(arch, catalog.hardware("h100"), Workload(n_chips=2))
    own = engine_memory.fitted()
    fixed = own.runtime_bytes + own.messages_bytes
    assert engine_memory.aside_of(d, Limits(10**6, 1)) == pytest.approx(1000 * held + fixed)
    assert engine_memory.aside_of(d, Limits(1, 10**5)) == pytest.approx(
        10**5 * arch.V * own.logit_bytes + fixed
    )


@pytest.mark.parametrize(
    ("chip", "limits"),
    [
        ("h100", Limits(8192, 1024)),
        ("mi300x", Limits(8192, 1024)),
        ("a100", Limits(2048, 256)),
        ("rtx 4090", Limits(2048, 256)),
    ],
)
def test_large_chips_that_are_no_a100_take_larger_steps(chip: str, limits: Limits) -> None:
    found = catalog.hardware(chip)
    assert engine_memory.usual_limits(found.name, found.hbm_bytes) == limits


def test_what_the_workload_says_takes_the_place_of_what_is_expected() -> None:
    arch, chip = catalog.model("llama-3-8b"), catalog.hardware("h100")
    asked = Workload(activation_bytes=2e9, overhead_bytes=3e9, overhead_fraction=0.1)
    d = deployment(arch, chip, asked)
    room = engine_memory.cache_room(d)
    assert room.expected_tokens == room.tokens_ceiling
    left = (float(d.usable_bytes) - 3e9) / 1.1 - float(d.weight_bytes) - 2e9
    assert room.expected_tokens == pytest.approx(left / 131_072, abs=1)
    assert room.expected_sequences == d.max_batch(asked.context)
    said = plan_deployment(arch, chip, asked).assumptions
    assert not any("published starts" in line for line in said)


@given(
    model=st.sampled_from(["llama-2-7b", "llama-3-70b", "deepseek-v3", "gemma-3-1b"]),
    chip=st.sampled_from(["h100", "b200", "rtx 4090", "v5e"]),
    n_chips=st.sampled_from([1, 2, 8, 64]),
    context=st.integers(1, 200_000),
    layout=st.sampled_from([None, "replicas", "batch-split"]),
)
@draws(60)
def test_an_engine_keeps_no_more_than_memory_and_never_less_than_nothing(
    model: str, chip: str, n_chips: int, context: int, layout: str | None
) -> None:
    arch, hardware = catalog.model(model), catalog.hardware(chip)
    w = Workload(n_chips=n_chips, context=context, layout=layout)
    try:
        d = deployment(arch, hardware, w)
    except ValueError:
        return
    room = engine_memory.cache_room(d)
    assert 0 <= room.expected_tokens <= room.tokens_ceiling
    assert room.expected_sequences <= max(d.max_batch(context), 0)
    assert room.expected_tokens // context >= room.expected_sequences - 1
    more = replace(hardware, hbm_bytes=2 * hardware.hbm_bytes)
    assert engine_memory.cache_room(replace(d, chip=more), Limits(1, 1)).expected_tokens >= (
        engine_memory.cache_room(d, Limits(1, 1)).expected_tokens
    )


GRIDS = [None, Grid(2, 2), Grid(1, 4, 4), Grid(2, 1, 2, 2), Grid(4)]


@given(
    model=st.sampled_from(["llama-3-70b", "deepseek-v3", "mixtral-8x7b"]),
    chip=st.sampled_from(["h100", "b200", "h200"]),
    grid=st.sampled_from(GRIDS),
    context=st.integers(1, 100_000),
    batch=st.integers(1, 2000),
    usable=st.floats(0.5, 1),
    said=st.sampled_from([0.0, 3e9]),
)
@draws(40)
def test_what_an_engine_holds_is_what_fits_beside_what_it_sets_aside(
    model: str, chip: str, grid: Grid | None, context: int, batch: int, usable: float, said: float
) -> None:
    """One predicate: a batch fits, by memory or for an engine, just if it is no larger than the
    largest; and the chips that an engine needs hold it, and would not with what memory has less."""
    arch, hardware = catalog.model(model), catalog.hardware(chip)
    if grid is not None and grid.ep > 1 and arch.moe is None:
        grid = Grid(grid.tp, grid.dp)
    n = grid.n_chips if grid else 4
    w = Workload(
        batch, context, n_chips=n, grid=grid, weights="fp8", usable_fraction=usable,
        overhead_bytes=said,
    )  # fmt: skip
    d = deployment(arch, hardware, w)
    room, beside = engine_memory.cache_room(d), engine_memory.beside_engine(d)
    assert d.fits(batch, context) == (batch <= d.max_batch(context))
    assert beside.fits(batch, context) == (batch <= room.expected_sequences)
    assert room.expected_sequences <= max(0, d.max_batch(context))
    memory, engine = d.chips_needed(batch, context), chips_for_engine(d, batch, context)
    if engine is not None:
        assert memory is not None
        assert engine >= memory
        assert engine_memory.cache_room(d.on(engine)).expected_sequences >= batch
    if said:
        assert (beside, engine) == (d, memory)


def test_a_plan_says_whom_an_engine_has_no_room_for() -> None:
    asked = ["plan", "--model", "qwen3-235b-a22b", "--chips", "4", "--weights", "fp8"]
    asked += ["--context", "4096", "--batch"]

    def plan(*more: str) -> str:
        return CliRunner().invoke(build(asked + list(more)), asked + list(more)).output

    assert "sequences of this context have room, not 64" in " ".join(plan("64").split())
    assert "have room" not in " ".join(plan("40").split())
    assert "An engine sets aside a chip" in plan("40", "--markdown")
    found = json.loads(plan("40", "--json"))
    assert found["expected_cache_tokens"] < found["cache_tokens_ceiling"]
    assert found["expected_max_batch"] == 44


def test_an_engine_that_would_not_start_is_in_the_reports(reports: list[Report]) -> None:
    """gpt-oss-120b on one H100: nothing is left for caches, and less than nothing was."""
    assert sum(r.cache_bytes < 0 for r in reports) == 1
    worst = max(reports, key=lambda r: r.aside_bytes / cache_reports.expected_aside(r, CONSTANTS))
    assert worst.aside_bytes < 3 * cache_reports.expected_aside(worst, CONSTANTS)


OWN = engine_memory.fitted()
CONSTANTS = (OWN.logit_bytes, OWN.runtime_bytes, OWN.messages_bytes)


@given(
    model=st.sampled_from(["llama-3-70b", "gemma-3-27b", "deepseek-v3", "mixtral-8x7b"]),
    pp=st.integers(1, 6),
    context=st.integers(1, 100_000),
    staged=st.booleans(),
)
@draws(40)
def test_tokens_of_cache_are_those_of_the_stage_with_the_least_room(
    model: str, pp: int, context: int, staged: bool
) -> None:
    """Of one plan the tokens and the largest batch, however unevenly its stages are filled: no
    fewer than that batch has, and fewer than of one more sequence for every stage."""
    ways = {"layout": "pipeline"} if staged else {"grid": Grid(pp=pp)}
    w = Workload(context=context, n_chips=pp, weights="int4", **ways)  # type: ignore[arg-type]
    d = deployment(catalog.model(model), catalog.hardware("b200"), w)
    room, most = engine_memory.cache_room(d), d.max_batch(context)
    assert most * context <= room.tokens_ceiling or not most
    assert room.tokens_ceiling <= (most + pp) * context
    assert room.expected_tokens <= (room.expected_sequences + pp) * context


LIKE = {
    "tensor": Grid(tp=16),
    "pipeline": Grid(pp=16),
    "experts": Grid(dp=16, ep=16),
    "replicas": Grid(dp=16),
}


@pytest.mark.parametrize("layout", LIKE)
def test_a_layout_and_the_grid_that_it_is_hold_and_cost_the_same(layout: str) -> None:
    """Over two machines, where messages of layers take longer; a pipeline and copies send none."""
    arch, chip = catalog.model("qwen3-235b-a22b"), catalog.hardware("b200")
    asked = Workload(n_chips=16, weights="int4")
    named = deployment(arch, chip, replace(asked, layout=layout))
    same = deployment(arch, chip, replace(asked, grid=LIKE[layout]))
    assert engine_memory.aside_of(named) == engine_memory.aside_of(same)
    assert engine_memory.cache_room(named) == engine_memory.cache_room(same)
    assert in_several_machines(named) == in_several_machines(same)
    assert in_several_machines(same) == (layout in ("tensor", "experts"))


@pytest.mark.parametrize("ways", [{"layout": "replicas"}, {"grid": Grid(dp=8)}])
def test_copies_that_send_nothing_are_engines_of_their_own(ways: dict[str, object]) -> None:
    arch, chip = catalog.model("llama-3-8b"), catalog.hardware("h100")
    alone = engine_memory.cache_room(deployment(arch, chip, Workload()))
    copies = deployment(arch, chip, Workload(n_chips=8, **ways))  # type: ignore[arg-type]
    room = engine_memory.cache_room(copies)
    assert room.set_aside_bytes == alone.set_aside_bytes
    assert room.expected_sequences == 8 * alone.expected_sequences
