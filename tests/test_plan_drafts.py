"""`twophase plan` with a draft and with found prefixes: the formulas of chapters 14 and 15, in a
plan that charges all of it."""

import json
from dataclasses import replace

import pytest
import typer
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from twophase.cli.plan import plan
from twophase.theory import catalog
from twophase.theory.continuous_batching import chunk_flops
from twophase.theory.drafted import DraftedDeployment
from twophase.theory.floors import floor_step_s
from twophase.theory.grid import Grid
from twophase.theory.plan import Plan, deployment, plan_deployment
from twophase.theory.speculative_decoding import speedup, verification_ratio
from twophase.theory.workload import Workload

app = typer.Typer()
app.command()(plan)
runner = CliRunner()
H100 = catalog.hardware("h100")
ROOMY = replace(H100, hbm_bytes=10**24)
BELOW = 1 + 1e-9  # sums of floats in another order
TARGET, DRAFT = catalog.model("llama-3-70b"), catalog.model("llama-3-8b")
GRIDS = [None, Grid(tp=8), Grid(tp=4, dp=2), Grid(dp=8)]


def drafted(w: Workload) -> DraftedDeployment:
    d = deployment(TARGET, ROOMY, w, DRAFT)
    assert isinstance(d, DraftedDeployment)
    return d


@draws(25)
@given(
    alpha=st.floats(0, 1),
    gamma=st.integers(1, 12),
    batch=st.integers(1, 400),
    context=st.integers(10, 20_000),
)
def test_the_gain_is_the_formula_s_of_chapter_14(alpha, gamma, batch, context) -> None:
    w = Workload(batch, context, n_chips=8, acceptance=alpha, draft_length=gamma)
    d = drafted(w)
    alone, small = d.target.step(batch, context), d.draft.step(batch, context)
    rates = (H100.hbm_bytes_per_s, H100.peak_flops_per_s())
    cache = float(d.target.cache_bytes(context))
    verify = verification_ratio(
        d.target.step_weight_bytes(batch),
        batch,
        cache,
        d.target.step_flops(1, context),
        gamma,
        *rates,
    )
    told = speedup(alpha, gamma, small.overlapped_s / alone.overlapped_s, verify)
    assert d.speedup() == pytest.approx(told, rel=1e-2)  # more rows of the embedding are read
    found = plan_deployment(TARGET, ROOMY, w, DRAFT)
    assert found.step is not None
    assert found.step.speedup == d.speedup()
    assert found.step.tokens_per_step == pytest.approx(sum(alpha**i for i in range(gamma + 1)))


@draws(25)
@given(
    grid=st.sampled_from(GRIDS),
    alpha=st.floats(0, 1),
    gamma=st.integers(1, 12),
    batch=st.integers(1, 400),
    n_prompt=st.integers(2, 5000),
    n_output=st.integers(2, 500),
    share=st.floats(0, 1),
)
def test_a_drafted_plan_never_does_more_than_the_machine_can(
    grid, alpha, gamma, batch, n_prompt, n_output, share
) -> None:
    gamma = min(gamma, n_output - 1)
    w = Workload(
        batch, n_prompt + n_output, n_prompt, n_output, 8, grid=grid, acceptance=alpha,
        draft_length=gamma, found_share=share,
    )  # fmt: skip
    both = plan_deployment(TARGET, ROOMY, w, DRAFT)
    alone = plan_deployment(TARGET, ROOMY, replace(w, acceptance=None, draft_length=None))
    e, plain = both.expected, alone.expected
    assert e is not None
    assert plain is not None
    assert both.memory.total_bytes == pytest.approx(
        alone.memory.total_bytes + (both.memory.draft_bytes or 0)
    )
    assert e.expected_tpot_s >= e.tpot_floor_s / BELOW
    assert e.expected_requests_per_s is not None
    assert e.requests_ceiling_per_s is not None
    assert e.expected_requests_per_s <= e.requests_ceiling_per_s * BELOW
    # whatever is drafted, the model computes every token that stays, and the weights are read
    flops = TARGET.prefill_flops(1, n_prompt, head_at_last_only=True)
    flops -= TARGET.prefill_flops(1, w.found, head_at_last_only=True) if w.found else 0
    flops += (n_output - 1) * TARGET.decode_step_flops(1, n_prompt)
    assert e.requests_ceiling_per_s * flops <= 8 * H100.peak_flops_per_s() * BELOW
    assert e.tpot_floor_s * (gamma + 1) >= plain.tpot_floor_s / BELOW
    better = plan_deployment(TARGET, ROOMY, replace(w, acceptance=(1 + alpha) / 2), DRAFT)
    assert better.expected is not None
    assert better.expected.expected_tpot_s <= e.expected_tpot_s * BELOW


@pytest.mark.parametrize("batch", [1, 8])
@pytest.mark.parametrize("names", [("mixtral-8x7b", "llama-2-7b"), ("llama-3-70b", "gpt-oss-20b")])
def test_at_the_floor_a_round_reads_the_experts_of_one_token(names, batch) -> None:
    """All of its tokens may visit the same; so may those of a draft with experts."""
    target, draft = map(catalog.model, names)
    w = Workload(batch, 1100, 1000, 100, acceptance=0.7, draft_length=4)
    d = deployment(target, ROOMY, w, draft)
    assert isinstance(d, DraftedDeployment)
    alone, small = floor_step_s(d.target), floor_step_s(d.draft)
    assert floor_step_s(d) * d.tokens_per_step == pytest.approx(alone + 4 * small, rel=1e-3)


@pytest.mark.parametrize(("drafted_tokens", "answer"), [(4, 4), (200, 100), (1, 1)])
def test_a_draft_longer_than_the_answer_is_refused(drafted_tokens: int, answer: int) -> None:
    with pytest.raises(ValueError, match=f"drafts {drafted_tokens} tokens, but the answer has"):
        Workload(1, 1000, 500, answer, acceptance=0.7, draft_length=drafted_tokens)


def test_a_draft_that_is_never_kept_costs_its_steps() -> None:
    w = Workload(8, 2000, n_output=100, n_chips=8, acceptance=0, draft_length=3)
    d = drafted(w)
    alone = d.target.mean_step(8).overlapped_s + 3 * d.draft.mean_step(8).overlapped_s
    assert d.mean_step(8).overlapped_s == pytest.approx(alone, rel=1e-3)  # more embedding rows
    assert d.speedup() < 1
    found = plan_deployment(TARGET, H100, w, DRAFT)
    assert any("drafting makes tokens slower" in line for line in found.warnings)


@draws(30)
@given(
    st.sampled_from(["llama-3-8b", "deepseek-v3", "gemma-2-9b", "mixtral-8x7b"]),
    st.integers(2, 20_000),
    st.floats(0, 1),
)
def test_a_found_prefix_is_a_chunk_that_somebody_else_has_read(name, n_prompt, share) -> None:
    arch = catalog.model(name)
    w = Workload(1, n_prompt + 10, n_prompt, 10, found_share=share)
    d = deployment(arch, ROOMY, w)
    assert w.found <= min(share * n_prompt, n_prompt - 1)
    if not w.found or w.found == n_prompt - 1:
        return
    chunk = chunk_flops(d, w.found, n_prompt - w.found)
    head = 2 * arch.V * arch.D
    assert d.prefill_flops(n_prompt, w.found) == pytest.approx(chunk + head)


def ttft(share: float, **asked: object) -> float:
    w = Workload(4, 4100, 4000, 100, found_share=share, **asked)  # type: ignore[arg-type]
    found: Plan = plan_deployment(DRAFT, H100, w)
    assert found.expected is not None
    assert found.service is not None
    assert found.service.ttft_s >= found.expected.ttft_floor_s / BELOW
    return found.expected.expected_ttft_s


@pytest.mark.parametrize("asked", [{}, {"grid": Grid(tp=2), "n_chips": 2}])
def test_more_hits_never_make_the_first_token_later(asked: dict) -> None:
    times = [ttft(share, **asked) for share in (0, 0.1, 0.5, 0.9, 0.999, 1)]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0] / 3


def test_the_table_says_what_a_round_and_a_hit_are() -> None:
    arguments = ["--model", "llama-3-70b", "--tp", "8", "--prompt", "2000", "--output", "100"]
    arguments += ["--draft", "llama-3-8b", "--draft-length", "4", "--acceptance", "0.5"]
    arguments += ["--prefix-hits", "0.25"]
    table = " ".join(runner.invoke(app, arguments).stdout.split())
    report = " ".join(runner.invoke(app, [*arguments, "--markdown"]).stdout.split())
    for part in ("draft llama-3-8b", "500 tokens of a prompt found", "Of them the draft's"):
        assert part in table
        assert part in report
    assert "Tokens of a step 1.94" in table
    assert "500 of a prompt's 2,000 tokens are found" in table
    found = json.loads(runner.invoke(app, [*arguments, "--json"]).stdout)
    assert found["draft"] == "llama-3-8b"
    assert found["tokens_per_step"] == 1.9375


def test_a_draft_of_other_tokens_is_minded() -> None:
    w = Workload(1, 500, acceptance=0.5, draft_length=2, n_chips=4)
    found = plan_deployment(TARGET, H100, w, catalog.model("llama-2-7b"))
    assert any("knows 32,000 tokens" in line for line in found.warnings)


BAD = [
    (["--draft", "llama-3-8b"], "Speculation needs --draft, --draft-length and --acceptance"),
    (["--acceptance", "0.5"], "Speculation needs"),
    (["--draft", "x", "--draft-length", "2", "--acceptance", "0.5"], "Unknown model 'x'"),
    (["--draft", "llama-3-8b", "--draft-length", "2", "--acceptance", "2"], "a probability"),
    (["--draft", "llama-3-8b", "--draft-length", "0", "--acceptance", "0"], "from 1 to 1,000"),
    (["--draft", "llama-3-8b", "--draft-length", "2", "--acceptance", "0", "--pp", "2"], "stages"),
    (["--prefix-hits", "1.5"], "a share from 0 to 1"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(a)[:40] for a, _ in BAD])
def test_what_cannot_be_drafted_or_found_ends_in_one_sentence(arguments, says) -> None:
    result = runner.invoke(app, ["--model", "llama-3-70b", *arguments])
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
