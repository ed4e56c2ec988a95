"""`twophase generate` and the reader of Hugging Face directories, onto a card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from device_tools import CARD, needs_a_card
from typer import Exit

from twophase.cli.generate import generate

pytestmark = needs_a_card
Printed = pytest.CaptureFixture[str]


def text(printed: Printed, **options: Any) -> str:
    """What the command writes, greedily."""
    asked = {"temperature": 0.0, "tokens": 16, "as_json": True}
    generate("def read_lines(path):", **(asked | options))
    return str(json.loads(printed.readouterr().out.splitlines()[-1])["text"])


@pytest.mark.parametrize("name", ["gqa", "mla", "moe", "ssm_attention"])
def test_a_text_from_the_card_is_that_of_the_cpu(name: str, capsys: Printed) -> None:
    on_cpu = text(capsys, model=name)
    assert text(capsys, model=name, device=CARD) == on_cpu
    assert text(capsys, model=name, device=CARD, no_cache=True) == on_cpu
    assert len(text(capsys, model=name, device=CARD, dtype="bf16")) > 4
    generate("x", model=name, device=CARD, tokens=4)  # as it streams
    assert "4 tokens after a prompt of 2" in capsys.readouterr().out


@pytest.mark.parametrize("draft", ["draft", "lookup", "quantized", "heads", "eagle", "mtp"])
def test_drafts_on_the_card_change_no_text(draft: str, capsys: Printed) -> None:
    target = {"model": "target", "device": CARD}
    assert text(capsys, draft=draft, **target) == text(capsys, **target)


def test_the_compiled_path_with_a_card_is_one_sentence(capsys: Printed) -> None:
    with pytest.raises(Exit) as ended:
        generate("x", device=CARD, path="compiled")
    assert ended.value.exit_code == 2
    says = capsys.readouterr().err
    assert "the compiled path runs on the CPU, and this model is on cuda" in says
    assert says.count("\n") == 1


@pytest.mark.parametrize("family", ["llama", "gemma3_text", "deepseek_v3", "qwen3_moe"])
def test_a_hugging_face_directory_is_read_onto_the_card(family: str, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from hugging_face_folders import build, save, sentence_piece

    from twophase.models import hugging_face

    folder = save(build(family), tmp_path, sentence_piece())
    on_cpu = hugging_face.load(folder, dtype=torch.float32)
    on_card = hugging_face.load(folder, dtype=torch.float32, device=CARD)
    assert {t.device.type for t in on_card.state_dict().values()} == {CARD}
    tokens = torch.randint(0, on_cpu.config.V, (2, 30))
    with torch.inference_mode():
        expected, found = on_cpu(tokens), on_card(tokens.to(CARD))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-3)
