"""`twophase plan --layout`: the loads and messages of chapter 10, in a plan that does not
contradict itself."""

import json
import math
import subprocess
import sys
from dataclasses import replace

import pytest
import typer
from draws import draws
from hypothesis import assume, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from twophase.cli.plan import plan
from twophase.theory import catalog, collectives
from twophase.theory.architecture import Architecture
from twophase.theory.hardware import bytes_per_value
from twophase.theory.layout import stages
from twophase.theory.links import Link
from twophase.theory.plan import Plan, plan_deployment
from twophase.theory.sharded_layouts import LAYOUTS, load
from twophase.theory.sharded_pass import Pass
from twophase.theory.workload import Workload

app = typer.Typer()
app.command()(plan)
runner = CliRunner()
LLAMA, H100, NVLINK = catalog.model("llama-3-70b"), catalog.hardware("h100"), catalog.link("nvlink")
ROOMY = replace(H100, hbm_bytes=10**24)
BELOW = 1 + 1e-9  # sums of floats in another order


def as_json(*arguments: str, fits: bool = True) -> dict:
    result = runner.invoke(app, [*arguments, "--json"])
    assert result.exit_code == (0 if fits else 1), result.stderr
    found: dict = json.loads(result.stdout)
    return found


def test_llama_on_eight_h100s_in_three_layouts_by_hand() -> None:
    """Norms and the cache's rest by the config; an all-reduce over n chips sends 2 (n - 1) / n of
    its 2 B D bytes, 2 L + 1 of them a step, and 4 B V bytes of logits are gathered."""
    asked = ["--model", "llama-3-70b", "--chips", "8", "--batch", "16", "--context", "4096"]
    layer = (2 * 64 + 2 * 8) * 128 * 8192 + 3 * 8192 * 28672
    params = 80 * (layer + 2 * 8192) + 2 * 128256 * 8192 + 8192
    norms, cache = (2 * 80 + 1) * 8192, 2 * 80 * 8 * 128 * 2 * 4096

    found = as_json(*asked, "--layout", "tensor")
    assert found["weight_bytes"] == 2 * ((params - norms) // 8 + norms)
    assert found["cache_bytes"] == 16 * cache / 8
    sent = 161 * 2 * 7 / 8 * 2 * 16 * 8192 + 7 / 8 * 4 * 16 * 128256
    assert found["step_sent_bytes"] == pytest.approx(sent)
    hops = (161 * 2 * 7 + 7) * 0.6e-6
    assert found["step_send_s"] == pytest.approx(sent / 450e9 + hops)
    work = max(found["step_memory_s"], found["step_compute_s"])
    assert found["step_time_s"] == pytest.approx(work + found["step_send_s"])

    found = as_json(*asked, "--layout", "pipeline")
    stage = 10 * (layer + 2 * 8192) + 128256 * 8192 + 8192  # with the head; the first embeds
    assert found["weight_bytes"] == 2 * stage
    assert found["cache_bytes"] == 16 * cache / 8
    read = 8 * (2 * stage + 2 * cache / 8)  # two sequences in each of eight micro-batches
    assert found["step_bytes"] == pytest.approx(read)
    assert found["step_sent_bytes"] == 8 * 2 * 8192 * 2

    found = as_json(*asked, "--layout", "replicas", fits=False)
    assert found["weight_bytes"] == 2 * params
    assert found["binds"] == "memory"


def test_one_chip_alone_sends_nothing_and_is_the_plan_without_a_layout() -> None:
    w = Workload(batch=7, context=3000, n_output=100, weights="int8")
    for name in ("mistral-7b", "mixtral-8x7b", "gemma-2-9b", "gpt-3"):
        arch = catalog.model(name)
        plain = plan_deployment(arch, ROOMY, w).as_dict()
        for layout in LAYOUTS:
            try:
                found = plan_deployment(arch, ROOMY, replace(w, layout=layout)).as_dict()
            except ValueError:
                continue
            assert found.pop("step_sent_bytes") == found.pop("step_send_s") == 0
            for key, value in found.items():
                if isinstance(value, float):
                    assert value == pytest.approx(plain[key], rel=1e-3), (name, layout, key)


@st.composite
def asked(draw: st.DrawFn) -> tuple[Architecture, Workload]:
    """A model, and a workload in a layout that can cut it."""
    arch = draw(st.sampled_from(list(catalog.MODELS.values())))
    n_output = draw(st.none() | st.integers(1, 300))
    w = Workload(
        batch=draw(st.integers(1, 200)),
        context=draw(st.integers(1, 20_000)) + (n_output or 0),
        n_output=n_output,
        n_chips=draw(st.sampled_from([1, 2, 3, 4, 8, 12, 16, 64])),
        weights=draw(st.sampled_from(["bf16", "int8", "int4"])),
        kv=draw(st.sampled_from(["bf16", "fp8"])),
        overhead_bytes=draw(st.integers(0, 10**9)),
        layout=draw(st.sampled_from(list(LAYOUTS))),
        link=draw(st.sampled_from(list(catalog.LINKS))),
    )
    try:
        plan_deployment(arch, ROOMY, w)
    except ValueError:
        assume(False)
    return arch, w


def load_of(arch: Architecture, w: Workload, B: int, S: int, T: int = 1):
    scale = bytes_per_value(w.weights) + (2 / 128 if w.weights == "int4" else 0)
    kept, kv = bytes_per_value(w.kept), bytes_per_value(w.kv)
    link = catalog.link(str(w.link))
    return load(str(w.layout), Pass(arch, B, S, T, scale, kv, 2, kept), w.n_chips, link), link


@draws(25)
@given(asked())
def test_a_plan_holds_reads_and_sends_what_the_layouts_load_says(asked) -> None:
    arch, w = asked
    found = plan_deployment(arch, ROOMY, w)
    one, link = load_of(arch, w, w.batch, w.context)
    assert found.step is not None
    assert found.service is not None
    assert found.memory.weight_bytes == pytest.approx(float(one.weight_bytes))
    assert found.memory.cache_bytes == pytest.approx(float(one.cache_bytes))
    assert found.step.step_bytes == pytest.approx(one.read_bytes)
    assert found.step.step_sent_bytes == pytest.approx(one.sent_bytes)
    assert found.step.step_time_s == pytest.approx(one.step_s(H100, link))
    prompt, _ = load_of(arch, w, 1, w.prompt, w.prompt)
    assert found.service.ttft_s == pytest.approx(prompt.step_s(H100, link))


@draws(10)
@given(asked(), st.floats(0.3, 30))
def test_what_fits_is_what_the_largest_batch_says_in_every_layout(asked, factor: float) -> None:
    arch, w = asked
    held = plan_deployment(arch, ROOMY, w).memory.total_bytes
    chip = replace(H100, hbm_bytes=int(held * factor) + 1)

    def memory(**change: int):
        return plan_deployment(arch, chip, replace(w, n_output=None, **change)).memory

    m = plan_deployment(arch, chip, w).memory
    assert m.fits == (w.batch <= m.max_batch) == (m.total_bytes <= m.usable_bytes)
    assert not memory(batch=m.max_batch + 1).fits
    assert m.max_batch == 0 or memory(batch=m.max_batch).fits
    if m.max_context is not None:
        assert m.fits == (w.context <= m.max_context)
        assert not memory(context=m.max_context + 1).fits
    if m.chips_needed is not None:
        assert memory(n_chips=m.chips_needed).fits
        assert not m.fits or m.chips_needed <= w.n_chips
    if m.fits:
        return
    for change in plan_deployment(arch, chip, w).would_fit:
        assert plan_deployment(arch, chip, replace(w, n_output=None, **change)).memory.fits


@draws(25)
@given(asked())
def test_no_line_of_a_layouts_plan_promises_more_than_another_allows(asked) -> None:
    arch, w = asked
    found = plan_deployment(arch, ROOMY, w)
    step, service = found.step, found.service
    assert step is not None
    assert service is not None
    assert step.step_send_s is not None
    floor = step.step_time_floor_s
    assert floor <= step.step_memory_s * BELOW
    assert (
        max(step.step_memory_s, step.step_compute_s) + step.step_send_s <= step.step_time_s * BELOW
    )
    assert step.step_time_s <= step.step_time_sum_s * BELOW
    assert service.decode_tokens_per_s <= service.decode_ceiling_tokens_per_s * BELOW
    longest = max(step.step_memory_s, step.step_compute_s, step.step_send_s)
    by = {"bandwidth": step.step_memory_s, "compute": step.step_compute_s}
    assert by.get(found.binds, step.step_send_s) == longest
    # all chips together cannot do more FLOPs than they have, whatever the layout
    flops = float(arch.decode_step_flops(1, w.prompt)) * service.decode_tokens_per_s
    assert flops <= w.n_chips * H100.peak_flops_per_s("bf16") * BELOW
    if w.n_output is None:
        return
    assert service.requests_per_s * service.request_latency_s == pytest.approx(w.batch)
    assert service.request_latency_s >= (service.ttft_s + (w.n_output - 1) * floor) / BELOW
    assert service.tokens_per_s <= service.ceiling_tokens_per_s * BELOW
    assert service.tokens_per_s_sum <= service.tokens_per_s * BELOW
    assert 0 < service.prefill_share <= 1 * BELOW
    assert service.tpot_s is None or service.tpot_s >= floor / BELOW


@draws(30)
@given(st.sampled_from([a for a in catalog.MODELS.values() if not a.kv_source]), st.data())
def test_the_stages_of_a_pipeline_hold_the_whole_model(arch: Architecture, data) -> None:
    n = data.draw(st.integers(1, arch.L))
    parts = stages(arch, n)
    tied = arch.V * arch.D if arch.tied_embeddings and n > 1 else 0  # on the last, as the head
    assert sum(sum(s.stored().values()) for s in parts) == arch.n_params() + tied
    assert sum(s.arch.L for s in parts) == arch.L
    assert sum(s.arch.cache_bytes(777) for s in parts) == arch.cache_bytes(777)
    read = sum(sum(s.read(5).values()) for s in parts)
    rows = 5 * arch.D if tied else 0
    assert read == pytest.approx(sum(arch.step_breakdown(5).values()) + rows)


@pytest.mark.parametrize("name", catalog.LINKS)
def test_a_links_mesh_is_the_squarest(name: str) -> None:
    link: Link = catalog.LINKS[name]
    for n in (*range(1, 65), 128, 256, 4096):
        sides = link.mesh(n)
        assert math.prod(sides) == n
        assert len(sides) <= link.n_axes
    assert catalog.link("v5e ici").mesh(16) == (4, 4)
    assert catalog.link("v5e ici").mesh(32) == (4, 8)
    assert catalog.link("v5p ici").mesh(128) == (4, 4, 8)


def test_more_sequences_than_chips_share_replicas_and_prompts_run_side_by_side() -> None:
    def planned(batch: int, n_chips: int) -> Plan:
        w = Workload(batch, 2000, n_output=100, n_chips=n_chips, layout="replicas")
        return plan_deployment(catalog.model("mistral-7b"), H100, w)

    one, four = planned(5, 1).service, planned(20, 4).service
    assert one is not None
    assert four is not None
    assert four.requests_per_s == pytest.approx(4 * one.requests_per_s)
    assert four.request_latency_s == pytest.approx(one.request_latency_s)
    assert four.ttft_s == one.ttft_s
    assert four.chip_hours_per_million_tokens == pytest.approx(one.chip_hours_per_million_tokens)


def test_a_step_that_mostly_sends_is_bound_by_its_links() -> None:
    found = as_json(
        "--model", "llama-3-8b", "--chips", "8", "--layout", "tensor", "--link", "ethernet"
    )
    assert found["binds"] == "links"
    n_sums, hop_s = 2 * 32 + 1, 25e-6
    assert found["step_send_s"] > n_sums * 2 * 7 * hop_s
    sent = collectives.all_reduce_sent_bytes(2 * 4096, 8) * n_sums
    assert found["step_sent_bytes"] == pytest.approx(sent + 7 / 8 * 4 * 128256)


def test_a_prompt_shorter_than_the_chips_reads_the_experts_of_a_whole_token() -> None:
    found = as_json(
        "--model", "mixtral-8x7b", "--weights", "int8", "--chips", "8", "--layout", "sequence",
        "--prompt", "6", "--output", "4", "--batch", "4",
    )  # fmt: skip
    assert found["ttft_s"] >= found["ttft_floor_s"]


BAD = [
    (["llama-3-70b", "--layout", "diagonal"], "The layouts are tensor, batch-split, length-split"),
    (["llama-3-70b", "--layout", "experts"], "llama-3-70b has no experts to deal out"),
    (["mixtral-8x7b", "--layout", "experts", "--chips", "16"], "8 experts, which cannot be dealt"),
    (["llama-3-70b", "--layout", "pipeline", "--chips", "81"], "take at most 80 chips"),
    (["deepseek-v3", "--layout", "batch-split"], "keeps no keys and values in all layers"),
    (["deepseek-v3", "--layout", "length-split"], "keeps no keys and values in all layers"),
    (["deepseek-v3", "--layout", "sequence"], "keeps no keys and values in all layers"),
    (["deepseek-v3", "--layout", "stationary"], "keeps no keys and values in all layers"),
    (["mixtral-8x7b", "--layout", "stationary"], "experts, which 'stationary' does not cut"),
    (["llama-3-70b", "--layout", "batch-split", "--chips", "3"], "64 query heads of llama"),
    (["llama-3-70b", "--layout", "tensor", "--split-cache", "evenly"], "without a layout"),
    (["llama-3-70b", "--link", "nvlink"], "say which layout"),
    (["llama-3-70b", "--layout", "tensor", "--link", "string"], "Unknown link 'string'"),
    (["llama-3-70b", "--layout", "tensor", "--hardware", "mi300x"], "what joins MI300X"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(a)[:50] for a, _ in BAD])
def test_what_cannot_be_cut_or_joined_ends_in_one_sentence(arguments, says) -> None:
    chips = [] if "--chips" in arguments else ["--chips", "8"]
    result = runner.invoke(app, ["--model", *arguments, *chips])
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_the_table_of_a_layout_names_its_links_and_what_waits() -> None:
    asked = ["--model", "llama-3-8b", "--chips", "16", "--batch", "20", "--layout", "batch-split"]
    text = " ".join(runner.invoke(app, asked).stdout.split())
    for part in (
        "layout batch-split",
        "Step, links",
        "sent by a chip",
        "reads and computes at once, then sends",
        "messages over NVLink 4: 450 GB/s and 0.6 us a hop",
        "20 sequences are no multiple of 16: some chips wait for others",
        "usually joins 8 chips of one machine, not 16",
    ):
        assert part in text


def test_a_plan_in_a_layout_needs_no_torch() -> None:
    code = (
        "import sys\nfrom twophase.cli.plan import plan\nfrom twophase.theory import catalog\n"
        "from twophase.theory.plan import plan_deployment\n"
        "from twophase.theory.workload import Workload\n"
        "w = Workload(4, 500, n_chips=4, layout='pipeline')\n"
        "plan_deployment(catalog.model('deepseek-v3'), catalog.hardware('h200'), w)\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
