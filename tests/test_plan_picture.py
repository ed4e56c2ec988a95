"""A plan as a picture beside its report."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twophase.cli import plan_picture
from twophase.cli.main import build
from twophase.theory import catalog
from twophase.theory.plan import deployment, plan_deployment
from twophase.theory.workload import Workload

ASKED = ["plan", "--model", "llama-3.1-70b", "--weights", "fp8", "--kv", "fp8", "--batch", "64"]
REQUESTS = [*ASKED, "--chips", "4", "--prompt", "2000", "--output", "300"]


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(list(arguments)), list(arguments))
    return result.exit_code, result.output


def test_a_report_shows_the_picture_that_lies_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "plan of mine.svg"
    code, text = run(*REQUESTS, "--markdown", "--picture", str(path))
    assert code == 0
    assert "](<plan of mine.svg>)" in text
    drawn = path.read_text()
    for word in ("Memory", "Time per token", "Rate", "eight of ten runs", "ceiling"):
        assert f"<!-- {word} -->" in drawn, word
    assert "![" not in run(*REQUESTS, "--markdown")[1]


@pytest.mark.parametrize(
    ("more", "code", "there"),
    [(("--context", "100000"), 1, False), (("--chips", "4"), 0, True)],
    ids=["does not fit", "steps alone"],
)
def test_what_does_not_fit_has_memory_alone(
    more: tuple[str, ...], code: int, there: bool, tmp_path: Path
) -> None:
    found = run(*ASKED, *more, "--picture", str(tmp_path / "a.svg"))
    assert found[0] == code
    assert ("<!-- Rate -->" in (tmp_path / "a.svg").read_text()) == there


def test_the_words_beside_a_picture_are_the_plan_s_numbers() -> None:
    w = Workload(n_chips=4, weights="fp8", batch=64, context=2300, n_output=300)
    plan = plan_deployment(catalog.model("llama-3.1-70b"), catalog.hardware("h100"), w)
    assert plan.expected is not None
    said = plan_picture.words(plan)
    assert f"at batch 64 {plan.expected.expected_tpot_s * 1e3:.3g} ms are expected" in said
    assert f"{plan.memory.weight_bytes / 1e9:.1f} GB of weights" in said


def test_the_curves_go_to_the_largest_batch_and_through_the_plan_s_own() -> None:
    for most, own in ((1, 1), (7, 7), (624, 64), (3, 1), (10**9, 12345)):
        found = plan_picture.batches(most, own)
        assert found == sorted(set(found))
        assert {1, own, most} <= set(found)
        assert len(found) <= plan_picture.MOST_POINTS + 1
    arch, chip = catalog.model("llama-3.1-70b"), catalog.hardware("h100")
    w = Workload(n_chips=4, weights="fp8", batch=64, context=2300, n_output=300)
    plan = plan_deployment(arch, chip, w)
    points = dict(plan_picture.over_batches(deployment(arch, chip, w), plan))
    assert points[64] == plan.expected
    rates = [e.expected_tokens_per_s for e in points.values()]
    assert rates == sorted(rates, key=float)


@pytest.mark.parametrize("name", ["plan.doc", "nowhere/plan.svg"])
def test_what_cannot_be_drawn_into_is_a_sentence(name: str, tmp_path: Path) -> None:
    code, text = run(*REQUESTS, "--picture", str(tmp_path / name))
    assert code == 2
    assert "twophase plan: cannot draw into" in text
    assert "Traceback" not in text


def test_a_picture_needs_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; from twophase.cli.main import build\n"
        "try: build(sys.argv[1:])(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "assert 'matplotlib' in sys.modules and 'torch' not in sys.modules"
    )
    picture = ["--picture", str(tmp_path / "a.svg")]
    done = subprocess.run(
        [sys.executable, "-c", program, *REQUESTS, *picture], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
