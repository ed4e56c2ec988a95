"""Heads that draft: what they weigh, store, read and gain."""

from dataclasses import replace

import pytest
from typer.testing import CliRunner

from twophase.cli.main import build
from twophase.theory import catalog
from twophase.theory.architecture import Architecture
from twophase.theory.draft_heads import draft_head
from twophase.theory.drafted import DraftedDeployment
from twophase.theory.grid import Grid
from twophase.theory.plan import deployment, plan_deployment
from twophase.theory.workload import Workload

ROOMY = replace(catalog.hardware("h200"), hbm_bytes=10**13)
DRAFTING = {"acceptance": 0.8, "draft_length": 3}


def test_deepseeks_module_weighs_what_its_maker_says() -> None:
    """huggingface.co/deepseek-ai/DeepSeek-V3: 685B, of which 671B are the model and 14B the module
    for multi-token prediction, its copies of the tables included."""
    arch = catalog.model("deepseek-v3")
    head = draft_head(arch, "mtp")
    assert arch.n_params() + head.n_params() == pytest.approx(685e9, rel=1e-3)
    assert head.n_params() == pytest.approx(14e9, rel=0.04)
    assert head.n_borrowed == 2 * 129280 * 7168


def test_eagles_head_is_a_layer_and_a_projection() -> None:
    head = draft_head(catalog.model("llama-3-70b"), "eagle")
    D = 8192
    layer = 2 * D * 64 * 128 + 2 * D * 8 * 128 + 3 * D * 28672 + 2 * D
    assert head.n_params() - head.n_borrowed == layer + 2 * D * D + 2 * D + D  # three more norms
    dense = draft_head(catalog.model("mixtral-8x7b"), "eagle")
    assert (dense.moe, dense.L) == (None, 1)


@pytest.mark.parametrize("kind", ["eagle", "mtp"])
@pytest.mark.parametrize(
    "how",
    [
        {},
        {"n_chips": 8},
        {"n_chips": 8, "layout": "tensor"},
        {"n_chips": 8, "grid": Grid(2, 4, 8)},
        {"n_chips": 8, "grid": Grid(8)},
    ],
)
def test_a_head_stores_its_layer_and_reads_the_models_tables(how: dict, kind: str) -> None:
    arch = catalog.model("deepseek-v3")
    head = draft_head(arch, kind)
    w = Workload(8, 2000, n_output=100, **DRAFTING, **how)  # type: ignore[arg-type]
    alone = plan_deployment(arch, ROOMY, replace(w, acceptance=None, draft_length=None))
    both = plan_deployment(arch, ROOMY, w, head)
    assert both.memory.draft_bytes is not None
    more = both.memory.total_bytes - alone.memory.total_bytes
    assert more == pytest.approx(both.memory.draft_bytes)
    stored = 2 * (head.n_params() - head.n_borrowed)
    assert stored / 8 <= more <= stored * 1.5
    d = deployment(arch, ROOMY, w, head)
    assert isinstance(d, DraftedDeployment)
    assert d.draft.step_weight_bytes(1) >= 2 * 129280 * 7168 / 8  # the output matrix, every time
    assert 1 < d.speedup() < d.tokens_per_step


def test_a_head_of_a_model_without_experts_gains_what_chapter_14_says() -> None:
    from twophase.theory.speculative_decoding import speedup

    arch = catalog.model("llama-3-70b")
    w = Workload(1, 2000, n_output=100, n_chips=4, **DRAFTING)  # type: ignore[arg-type]
    d = deployment(arch, ROOMY, w, draft_head(arch, "eagle"))
    assert isinstance(d, DraftedDeployment)
    times = [one.mean_step(1).overlapped_s for one in (d.target, d.draft)]
    told = speedup(0.8, 3, times[1] / times[0], 1)
    assert d.speedup() == pytest.approx(told, rel=1e-3)  # a few more rows of the embedding


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(build(["plan", *arguments]), ["plan", *arguments])
    return result.exit_code, " ".join(result.output.split())


def test_a_head_has_a_name_at_a_shell() -> None:
    asked = ["--model", "deepseek-v3", "--hardware", "h200", "--weights", "fp8", "--tp", "2"]
    asked += ["--ep", "16", "--batch", "64", "--prompt", "2000", "--output", "200", "--draft"]
    for kind in ("mtp", "eagle"):
        code, text = run(*asked, kind, "--draft-length", "1", "--acceptance", "0.85")
        assert code == 0, text
        assert f"deepseek-v3's {kind} head drafts 1 token" in text
    code, text = run(*asked, "mtp")
    assert code == 2
    assert "needs --draft, --draft-length and --acceptance" in text


def test_a_model_whose_last_layer_reads_anothers_keys_has_no_such_head() -> None:
    layers = {"L": 4, "kv_source": (0, 1, 1, 1)}
    arch = Architecture("shared", D=64, F=128, N=4, K=2, H=16, V=100, **layers)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="read the keys of layer 1"):
        draft_head(arch, "mtp")
    with pytest.raises(ValueError, match="one of eagle, mtp"):
        draft_head(arch, "medusa")
