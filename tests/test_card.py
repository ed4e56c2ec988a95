"""A chip of one's own in a file."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from twophase.cli import card
from twophase.cli.main import build
from twophase.theory import catalog

CARD = """\
name: mine
flops_per_s: {bf16: 4e13, fp8: 8.0e13}
hbm_bytes_per_s: 2.56e11
hbm_bytes: 6.0e10
"""
OWN = "overheads: {layer_s: 1.0e-4, layer_s_per_sequence: 0, prompt_factor: 1.5}\n"


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(list(arguments)), list(arguments))
    return result.exit_code, result.output


@pytest.mark.parametrize("name", catalog.HARDWARE)
def test_a_chip_that_is_written_is_read_as_it_was(name: str, tmp_path: Path) -> None:
    card.write(catalog.HARDWARE[name], tmp_path / "a.yaml")
    assert card.chip(str(tmp_path / "a.yaml")) == catalog.HARDWARE[name]


def test_a_plan_for_a_card_is_that_of_its_rates(tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(CARD)
    code, text = run(
        "plan", "--model", "llama-3-8b", "--hardware", str(tmp_path / "my.yaml"), "--json"
    )
    assert code == 0
    found = json.loads(text)
    assert found["hardware"] == "mine"
    read = catalog.model("llama-3-8b").step_weight_bytes(1)
    assert found["step_time_floor_s"] == pytest.approx(read / 2.56e11)
    code, text = run(
        "size", "--model", "llama-3-8b", "--hardware", f"{tmp_path / 'my.yaml'},h100", "--json"
    )
    assert code == 0
    assert {one["hardware"] for one in json.loads(text)["choices"]} == {"mine", "H100 SXM"}


def test_a_card_s_own_constants_are_said_in_place_of_the_runs(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    for text, said in (
        (CARD, "no run that the expected times are fitted to had chips like the mine"),
        (CARD + OWN, "100 us a layer and step + 0.00 us a sequence (launches, messages): from the"),
    ):
        path.write_text(text)
        shown = " ".join(run("plan", "--model", "llama-3-8b", "--hardware", str(path))[1].split())
        assert said in shown
    assert "no run" not in shown
    card.write(card.chip(str(path)), tmp_path / "again.yaml")
    assert card.chip(str(tmp_path / "again.yaml")) == card.chip(str(path))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[1, 2]", "must hold name, flops_per_s"),
        ("name: [", "is not YAML"),
        (CARD.replace("hbm_bytes:", "memory:"), "has no hbm_bytes. A card has name"),
        (CARD + "color: red\n", "has 'color', which is no field"),
        (CARD.replace("{bf16: 4e13, fp8: 8.0e13}", "4e13"), "must give rates by format"),
        (CARD.replace("bf16", "bf17"), "must give rates by format"),
        (CARD.replace("2.56e11", "fast"), "hbm_bytes_per_s of"),
        (CARD.replace("6.0e10", "-1"), "must be a positive number, but it is -1"),
        (CARD.replace("6.0e10", "true"), "must be a positive number, but it is True"),
        (CARD + "overheads: {layer_s: 1.0e-4}\n", "must give layer_s, layer_s_per_sequence"),
        (CARD + OWN.replace("1.0e-4", "-1"), "layer_s of"),
        (CARD + OWN.replace("1.5", "0.5"), "the last 1 or more"),
    ],
)
def test_a_file_that_is_no_card_is_a_sentence(text: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text(text)
    code, output = run("plan", "--model", "llama-3-8b", "--hardware", str(tmp_path / "my.yaml"))
    assert code == 2
    assert says in " ".join(output.split())


def test_a_card_that_is_not_there_is_a_sentence() -> None:
    code, output = run("plan", "--model", "llama-3-8b", "--hardware", "nowhere/my.yaml")
    assert code == 2
    assert "Cannot read nowhere/my.yaml: No such file" in " ".join(output.split())


def test_what_was_measured_is_not_written_into_a_file_that_plan_would_not_read() -> None:
    code, output = run("measure", "--out", "card.txt")
    assert code == 2
    assert "a card ends in .yaml" in output
