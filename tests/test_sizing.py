"""Which chips keep a promise: every choice held against the planner, and against all others."""

import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from twophase.cli.main import build
from twophase.theory import catalog
from twophase.theory.expected import expect
from twophase.theory.grid import Grid
from twophase.theory.plan import deployment, plan_deployment
from twophase.theory.sizing import Choice, Demand, choices, search
from twophase.theory.workload import Workload

MODEL = catalog.model("llama-3.1-70b")
CHIPS = [catalog.hardware(name) for name in ("h100", "h200")]
PRICES = {"H100 SXM": 2.5, "H200 SXM": 3.8}
DEMAND = Demand(2000, 300, requests_per_s=5, ttft_s=4, tpot_s=0.05)
ASKED = Workload(weights="fp8", kv="fp8")
ARGUMENTS = ["size", "--model", "llama-3.1-70b", "--weights", "fp8", "--kv", "fp8", "--prompt"]
ARGUMENTS += ["2000", "--output", "300", "--rate", "5", "--ttft", "4", "--tpot", "0.05"]


def found(demand: Demand = DEMAND, prices: dict[str, float] | None = None) -> list[Choice]:
    return choices(MODEL, CHIPS, demand, ASKED, prices)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(list(arguments)), list(arguments))
    return result.exit_code, result.output


def test_every_choice_is_a_plan_that_fits_keeps_the_limits_and_serves_the_rate() -> None:
    assert len(found()) > 3
    for one in found():
        asked = replace(
            ASKED, compute="fp8", batch=one.batch, context=2300, n_prompt=2000, n_output=300,
            n_chips=one.n_chips, grid=one.grid,
        )  # fmt: skip
        plan = plan_deployment(MODEL, catalog.hardware(one.hardware), asked)
        assert plan.expected == one.expected
        assert one.batch <= plan.memory.expected_max_batch  # beside what an engine sets aside
        assert one.expected.expected_tpot_range_s[1] <= 0.05
        assert one.expected.expected_ttft_range_s[1] <= 4
        assert one.expected.expected_requests_per_s is not None
        assert one.n_replicas * one.expected.expected_requests_per_s * 0.8 >= 5 * (1 - 1e-9)


def test_a_copy_or_a_request_in_flight_less_would_not_do() -> None:
    for one in found():
        asked = replace(
            ASKED, compute="fp8", batch=max(one.batch - 1, 1), context=2300, n_prompt=2000,
            n_output=300, n_chips=one.n_chips, grid=one.grid,
        )  # fmt: skip
        less = plan_deployment(MODEL, catalog.hardware(one.hardware), asked).expected
        assert less is not None
        assert less.expected_requests_per_s is not None
        assert one.batch == 1 or one.n_replicas * less.expected_requests_per_s * 0.8 < 5


def test_the_best_are_those_that_no_other_beats_in_price_and_time() -> None:
    def at(one: Choice) -> tuple[float, float]:
        assert one.price_per_hour is not None
        return one.price_per_hour, one.expected.expected_tpot_s

    all_found = found(prices=PRICES)
    for one in all_found:
        price, tpot = at(one)
        beaten = any(
            at(o)[0] <= price and at(o)[1] <= tpot and at(o) != (price, tpot) for o in all_found
        )
        assert one.best == (not beaten)
    assert sum(one.best for one in all_found) >= 2
    assert [at(one)[0] for one in all_found] == sorted(at(one)[0] for one in all_found)


def test_twice_the_rate_takes_no_more_than_twice_the_copies_and_no_fewer() -> None:
    once = {(c.hardware, c.layout): c.n_replicas for c in found()}
    twice = {
        (c.hardware, c.layout): c.n_replicas for c in found(replace(DEMAND, requests_per_s=10))
    }
    assert once.keys() == twice.keys()
    assert all(once[key] <= twice[key] <= 2 * once[key] for key in once)


def test_the_price_of_a_million_tokens_is_the_hours_price_over_the_tokens_of_an_hour() -> None:
    for one in found(prices=PRICES):
        hourly = PRICES[one.hardware] * one.all_chips
        assert one.price_per_hour == pytest.approx(hourly)
        assert one.cost_per_million_tokens == pytest.approx(hourly / (5 * 300 * 3600) * 1e6)


def test_a_promise_that_nothing_keeps_is_exit_code_1_and_says_what_would_help() -> None:
    code, text = run(*ARGUMENTS[:-1], "0.001")
    assert code == 1
    assert "Nothing keeps this promise" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rate", "-1"], "requests_per_s must be a positive number"),
        (["--price", "h100"], "such as h100=2.5"),
        (["--price", "h99=1"], "Unknown hardware 'h99'"),
        (["--used", "1.5"], "used must lie above 0"),
        (["--hardware", "h100,x"], "Unknown hardware 'x'"),
        (["--hardware", ","], "--hardware must name a chip"),
        (["--price", "a100=2"], "A100 80GB SXM, which --hardware does not name"),
        (["--weights", "fp7"], "Unknown format 'fp7'"),
        (["--output", "1"], "An answer of 1 token has none after the first"),
        (["--output", "0"], "n_output must be a whole number"),
        (["--tpot-p", "100"], "tpot_p must lie between 0 and 100"),
        (["--ttft-p", "0"], "ttft_p must lie between 0 and 100"),
        (["--json", "--markdown"], "either --json or --markdown"),
    ],
)
def test_a_question_that_cannot_be_asked_is_a_sentence(arguments: list[str], says: str) -> None:
    code, text = run(*ARGUMENTS, *arguments)
    assert code == 2
    assert says in " ".join(text.split())


def test_what_no_run_had_and_what_the_model_is_not_made_for_is_said() -> None:
    code, text = run(
        *ARGUMENTS[:3], "--prompt", "200000", "--output", "10", "--rate", "0.001",
        "--hardware", "mi300x,mi300x",
    )  # fmt: skip
    shown = " ".join(text.split())
    assert code == 0
    assert "Mind the model is made for at most 131,072 positions" in shown
    assert "had chips like the MI300X or products in bf16" in shown
    assert all(one.minds == () for one in found() if one.grid is None or one.grid.pp == 1)


def test_json_and_a_picture(tmp_path) -> None:
    picture = tmp_path / "size.svg"
    code, text = run(
        *ARGUMENTS, "--price", "h100=2.5,h200=3.8,b200=6", "--json", "--picture", str(picture)
    )
    assert code == 0
    listed = json.loads(text)
    assert listed["schema"] == 2
    assert len(listed["choices"]) > 3
    assert all(one["all_chips"] == one["n_chips"] * one["n_replicas"] for one in listed["choices"])
    assert "expected time per token" in picture.read_text()


def test_no_chips_and_two_kinds_of_output_are_sentences() -> None:
    for number in ("0", "-1"):
        code, text = run("plan", "--model", "llama-3-8b", "--chips", number)
        assert code == 2
        assert f"from 1 to 10^12, but it is {number}" in text
    code, text = run("plan", "--model", "llama-3-8b", "--json", "--markdown")
    assert code == 2
    assert "either --json or --markdown" in text


def test_a_request_of_one_token_has_no_time_per_token() -> None:
    text = run("plan", "--model", "llama-3-8b", "--prompt", "100", "--output", "1")[1]
    assert "TTFT" in text
    assert "TPOT" not in text


def test_auto_takes_the_fewest_chips_that_fit() -> None:
    asked = ["plan", "--model", "llama-3-70b", "--batch", "16", "--context", "8192", "--json"]
    code, text = run(*asked, "--chips", "auto")
    assert code == 0
    needed = json.loads(text)["workload"]["n_chips"]
    assert run(*asked, "--chips", str(needed))[1] == text
    assert run(*asked, "--chips", str(needed - 1))[0] == 1


def test_auto_where_no_number_of_chips_is_enough_is_a_sentence() -> None:
    asked = ["plan", "--model", "deepseek-v3", "--batch", "100000", "--context", "100000"]
    code, text = run(*asked, "--chips", "auto")
    assert code == 2
    assert "No number of chips is enough" in text


def test_products_run_in_the_format_of_the_weights_where_the_chip_can() -> None:
    def compute(*arguments: str) -> str:
        code, text = run("plan", "--model", "llama-3-8b", "--json", *arguments)
        assert code == 0
        return json.loads(text)["workload"]["compute"]

    assert compute("--weights", "fp8") == "fp8"
    assert compute("--weights", "fp8", "--hardware", "a100") == "bf16"
    assert compute("--weights", "fp4", "--hardware", "b200") == "fp4"
    assert compute("--weights", "fp4") == "bf16"
    assert compute("--weights", "int4") == "bf16"
    assert compute("--weights", "fp8", "--compute", "bf16") == "bf16"


def test_the_report_in_markdown_has_what_the_table_has() -> None:
    asked = ["plan", "--model", "llama-3-70b", "--chips", "4", "--batch", "8", "--output", "100"]
    code, report = run(*asked, "--markdown")
    shown = " ".join(run(*asked)[1].split())
    assert code == 0
    rows = [line for line in report.splitlines() if line.startswith("| ")]
    assert len({row.count("|") for row in rows}) == 2  # three columns, then four
    for row in rows:
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        if "--" not in cells[0] and cells[0] not in ("Memory", "A decode step", "Times", "Rates"):
            assert cells[0] in shown
            assert cells[1] in shown
    for sentence in (line[2:] for line in report.splitlines() if line.startswith("- ")):
        assert " ".join(sentence.split()) in shown


def test_the_best_layouts_are_found_by_trying_them_all_by_hand() -> None:
    """Fewest copies over every batch that fits, for a handful of grids, by the planner alone."""
    chip, demand = CHIPS[1], replace(DEMAND, tpot_s=0.03, requests_per_s=9.0)
    listed = {c.layout: c for c in choices(MODEL, [chip], demand, ASKED)}
    for grid in (Grid(tp=2), Grid(tp=4), Grid(tp=8, pp=2)):
        w = replace(
            ASKED, compute="fp8", context=2300, n_prompt=2000, n_output=300, grid=grid,
            n_chips=grid.n_chips,
        )  # fmt: skip
        rates = []
        for batch in range(1, 80):
            e = expect(deployment(MODEL, chip, replace(w, batch=batch)))
            assert e.expected_requests_per_s is not None
            if e.expected_tpot_range_s[1] > 0.03 or e.expected_ttft_range_s[1] > 4:
                break
            rates.append(e.expected_requests_per_s)
        copies = math.ceil(9 / (0.8 * max(rates))) if rates else None
        assert (listed[str(grid)].n_replicas if str(grid) in listed else None) == copies


def test_experts_get_copies_of_attention_and_latents_decide() -> None:
    arch, demand = catalog.model("deepseek-v3"), Demand(2000, 300, 20, tpot_s=0.1)
    h200 = catalog.hardware("h200")
    listed = search(arch, [h200], demand, Workload(weights="fp8", kv="fp8"))
    layouts = {one.layout for one in listed.choices}
    assert {"tp 8", "dp 8 ep 8", "tp 8 dp 2 ep 16"} <= layouts
    assert listed.refused["H200 SXM"]["memory"] > 0
    for one in listed.choices:
        assert one.grid is not None
        w = Workload(one.batch, 2300, 2000, 300, one.n_chips, "fp8", "fp8", "fp8", grid=one.grid)
        found = plan_deployment(arch, h200, w)
        assert found.memory.fits
        assert found.expected == one.expected


@pytest.mark.parametrize("model", ["llama-3.1-70b", "deepseek-v3"])
def test_a_percentile_never_makes_a_promise_easier(model: str) -> None:
    arch, chip = catalog.model(model), catalog.hardware("b200")
    asked = Workload(weights="fp8", kv="fp8")
    cheapest = []
    for p in (None, 95.0, 99.9):
        demand = Demand(2000, 300, 8, 3, 0.06, ttft_p=p, tpot_p=p)
        listed = choices(arch, [chip], demand, asked)
        cheapest.append({one.layout: one.all_chips for one in listed})
        for one in listed:
            assert one.tpot_limit_s is not None
            assert one.tpot_limit_s <= 0.06
            assert one.ttft_limit_s <= 3
            assert one.tpot_limit_s >= one.expected.expected_tpot_range_s[1] * (1 - 1e-9)
            assert one.ttft_limit_s >= one.expected.expected_ttft_range_s[1] * (1 - 1e-9)
    for milder, harder in itertools.pairwise(cheapest):
        assert harder.keys() <= milder.keys()
        assert all(milder[layout] <= harder[layout] for layout in harder)


def test_answers_of_one_token_are_chosen_and_shown_by_the_time_to_it() -> None:
    """There is no token after it, so nothing is said of one and nothing hangs on its time."""
    arch, chip = catalog.model("gemma-3-27b"), catalog.hardware("a100")
    listed = choices(arch, [chip], Demand(1000, 1, 30, 2), Workload())
    assert len(listed) > 3
    first = [one.expected.expected_ttft_s for one in listed]
    chips = [one.all_chips for one in listed]
    for i, one in enumerate(listed):
        beats = [chips[j] <= chips[i] and first[j] <= first[i] for j in range(len(listed))]
        same = [(chips[j], first[j]) == (chips[i], first[i]) for j in range(len(listed))]
        assert one.best == (beats == same)
        assert one.tpot_limit_s is None
    asked = ["size", "--model", "gemma-3-27b", "--prompt", "1000", "--output", "1", "--hardware"]
    for more in ([], ["--markdown"]):
        code, text = run(*asked, "a100", "--ttft", "2", "--rate", "30", *more)[:2]
        assert code == 0
        assert "TPOT" not in text
        assert "a token" not in text.replace("a token's", "")
        assert "to the token" in text


def test_the_table_and_the_report_name_layouts_and_say_why() -> None:
    asked = [*ARGUMENTS, "--price", "h100=2.5,h200=3.8,b200=6", "--tpot-p", "99", "--ttft-p", "95"]
    code, text = run(*asked)
    shown = " ".join(text.split())
    assert code == 0
    assert "TTFT p95 4 s, TPOT p99 50 ms" in shown
    for part in ("Chosen", "is the cheapest; next on", "Or ", "tp2", "tp8 pp2", "Poisson"):
        assert part in shown
    assert all(len(line) <= 80 for line in text.splitlines())
    report = run(*asked, "--markdown")[1]
    rows = [line for line in report.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    for row in rows[2:]:
        for cell in row.strip("|").split("|"):
            assert cell.strip().replace("\\*", "*") in shown
    assert "## Why" in report
    assert "- Chosen: " in report


def test_a_chip_whose_links_nobody_knows_is_tried_tensor_parallel() -> None:
    listed = choices(MODEL, [catalog.hardware("mi300x")], replace(DEMAND, ttft_s=None), ASKED)
    assert {one.layout for one in listed} <= {"tp 1", "tp 2", "tp 4", "tp 8"}
    assert listed
    assert all(one.grid is None for one in listed)


def test_sizing_needs_no_torch() -> None:
    code = (
        "import sys\nfrom twophase.cli import size\nfrom twophase.theory import catalog\n"
        "from twophase.theory.sizing import Demand, choices\n"
        "from twophase.theory.workload import Workload\n"
        "asked, h200 = Workload(weights='fp8'), catalog.hardware('h200')\n"
        "choices(catalog.model('llama-3-8b'), [h200], Demand(100, 10, 1, 9, ttft_p=95), asked)\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
