"""`twophase plan` says what the formulas say, in words and as JSON, and refuses nonsense in one
sentence."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import typer
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from twophase.cli.plan import plan
from twophase.theory import catalog
from twophase.theory.architecture import Architecture
from twophase.theory.arithmetic_intensity import critical_batch_of_step
from twophase.theory.deployment import Deployment
from twophase.theory.hardware import Hardware, bytes_per_value
from twophase.theory.layout import chip_part
from twophase.theory.plan import plan_deployment
from twophase.theory.workload import Workload

app = typer.Typer()
app.command()(plan)
runner = CliRunner()
EXAMPLE = ["--model", "llama-2-13b", "--hardware", "h100", "--batch", "32", "--context", "1024"]

TINY = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 256,
    "tie_word_embeddings": True,
    "dtype": "float32",
}


def as_json(*arguments: str, fits: bool = True) -> dict:
    result = runner.invoke(app, [*arguments, "--json"])
    assert result.exit_code == (0 if fits else 1), result.stderr
    found: dict = json.loads(result.stdout)
    assert found["fits"] is fits
    return found


def test_the_example_on_an_h100() -> None:
    """Recomputed by hand: 26.03 GB of weights without 327.7 MB of embedding, 819,200 bytes a
    token."""
    found = as_json(*EXAMPLE)
    assert found["schema"] == 6
    assert found["weight_bytes"] == 2 * 13_015_864_320
    assert found["cache_bytes"] == 32 * 1024 * 819_200
    assert found["max_batch"] == 60  # (0.9 x 85.52 - 26.03) GB / 838.9 MB
    assert found["critical_batch"] is None  # 26.9 GFLOP against 839 MB for each more sequence
    assert found["critical_batch_weights"] == 296
    rows = 2 * 5120
    read = 2 * (13_015_864_320 - 32_000 * 5120)
    assert found["step_time_floor_s"] == pytest.approx((read + rows) / 3.35e12)
    assert found["step_memory_s"] == pytest.approx(
        (read + 32 * rows + 32 * 1024 * 819_200) / 3.35e12
    )
    matmuls = 13_015_864_320 - 32_000 * 5120 - 81 * 5120
    flops = 32 * (2 * matmuls + 4 * 40 * 40 * 128 * 1024)
    assert found["step_compute_s"] == pytest.approx(flops / 989e12)
    assert found["step_time_s"] == found["step_memory_s"]
    assert found["decode_tokens_per_s"] == pytest.approx(32 / found["step_time_s"])
    assert found["binds"] == "bandwidth"
    assert found["requests_per_s"] is found["cost_per_million_tokens"] is None  # without an output


def test_the_table_carries_what_a_reader_looks_for() -> None:
    result = runner.invoke(app, [*EXAMPLE, "--price-per-hour", "2.5", "--output", "100"])
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for part in (
        "26.03 GB",
        "26.84 GB",
        "76.97 GB usable of",
        "Largest batch that fits 60",
        "Chips needed 1",
        "Critical batch none",
        "Critical batch, weights 296",
        "Latency of a request",
        "of a machine at its peak goes to prompts",
        "Cost per million tokens",
        "an engine uses 0.9 of a chip's memory",
        "prompts of the others included",
    ):
        assert part in text


@pytest.mark.parametrize("chip", ["h100", "tpu-v5e"])
@pytest.mark.parametrize("name", ["llama-2-70b", "mistral-7b", "deepseek-v3", "mixtral-8x7b"])
def test_each_change_that_is_offered_fits_by_itself_and_is_the_least(name: str, chip: str) -> None:
    arch, hardware = catalog.model(name), catalog.hardware(chip)
    for batch, context, n_chips in ((1, 1000, 1), (300, 4097, 8), (64, 100_000, 3)):
        asked = Workload(batch=batch, context=context, n_output=90, n_chips=n_chips)
        offered = plan_deployment(arch, hardware, asked).would_fit
        fits = Deployment(arch, hardware, asked).max_batch(context) >= batch
        assert bool(offered) is not fits
        for change in offered:
            w = replace(asked, **change)
            assert Deployment(arch, hardware, w).max_batch(w.context) >= w.batch
            for field, step in (("batch", 1), ("context", 1), ("n_chips", -1)):
                if field in change:
                    w = replace(asked, **change | {field: change[field] + step})
                    assert Deployment(arch, hardware, w).max_batch(w.context) < w.batch
        counts = [change["n_chips"] for change in offered if "n_chips" in change]
        assert counts == sorted(set(counts), reverse=True)  # a narrower format pays in chips


NOTHING = ("step_time_s", "decode_tokens_per_s", "requests_per_s", "tokens_per_s", "ttft_s")


def test_what_does_not_fit_says_what_would_and_promises_nothing() -> None:
    arguments = ["--model", "llama-2-13b", "--batch", "61", "--price-per-hour", "2"]
    found = as_json(*arguments, fits=False)
    assert (found["binds"], found["max_batch"], found["chips_needed"]) == ("memory", 60, 2)
    assert found["max_context"] == 1019
    assert all(found[name] is None for name in (*NOTHING, "cost_per_million_tokens"))
    assert as_json(*arguments, "--chips", "2")["chips_needed"] == 2
    as_json(*arguments, "--context", "1019")
    assert found["would_fit"] == [{"batch": 60}, {"context": 1019}, {"n_chips": 2}, {"kv": "fp8"}]
    shown = runner.invoke(app, arguments)
    assert shown.exit_code == 1
    assert "does not fit" in shown.stdout
    assert "tokens/s" not in shown.stdout
    for word in ("TTFT", "step", "peak rates", "throughput", "latency", "times", "decodes"):
        assert word not in shown.stdout.partition("Assumed")[2]
    found = as_json("--model", "gpt-3", "--hardware", "a100", fits=False)
    assert (found["max_batch"], found["max_context"], found["chips_needed"]) == (0, 0, 5)


def test_what_every_chip_keeps_fits_on_no_number_of_chips() -> None:
    arguments = ["--model", "deepseek-v2", "--batch", "1000", "--context", "100000"]
    assert as_json(*arguments, "--chips", "8", fits=False)["chips_needed"] is None
    shown = runner.invoke(app, [*arguments, "--chips", "8"])
    assert "Chips needed no number what every chip keeps" in " ".join(shown.stdout.split())
    needed = as_json(*arguments, "--split-cache", "evenly", fits=False)["chips_needed"]
    as_json(*arguments, "--split-cache", "evenly", "--chips", str(needed))


def test_large_batches_of_short_contexts_are_compute_bound() -> None:
    found = as_json(
        "--model", "llama-3-8b", "--hardware", "h100", "--batch", "1000", "--context", "16"
    )
    assert found["binds"] == "compute"
    assert found["step_time_s"] == found["step_compute_s"] > found["step_memory_s"]


def test_every_request_pays_for_its_prompt() -> None:
    """The deployment whose 20.5 requests/s would have needed three times the peak."""
    found = as_json(
        "--model", "llama-3-70b", "--chips", "8", "--batch", "64",
        "--context", "8192", "--output", "256", "--price-per-hour", "2",
    )  # fmt: skip
    prefill = 2 * 7936 * (70_553_706_496 - 2 * 128_256 * 8192 - 161 * 8192) / 8
    prefill += 2 * 128_256 * 8192 / 8 + 4 * 80 * 8 * 128 * 7936 * 7937 / 2
    assert found["ttft_s"] == pytest.approx(prefill / 989e12, rel=1e-6)
    weights = (70_553_706_496 - 128_256 * 8192) / 8 * 2
    steps = 255 / 64 * (weights + 64 * 8064 * 4 * 80 * 128) / 3.35e12
    assert found["requests_per_s"] == pytest.approx(1 / (found["ttft_s"] + steps), rel=1e-4)
    assert found["requests_per_s"] == pytest.approx(5.17, abs=0.005)
    assert found["tokens_per_s"] == pytest.approx(256 * found["requests_per_s"])
    assert found["request_latency_s"] == pytest.approx(64 / found["requests_per_s"])
    assert found["cost_per_million_tokens"] == pytest.approx(
        8 * 2 / 3600 * 1e6 / found["tokens_per_s"]
    )
    alone = found["ttft_s"] + 255 * found["tpot_s"]
    assert found["request_latency_s"] == pytest.approx(alone)


def test_chips_share_evenly_and_the_price_is_per_chip() -> None:
    arguments = ["--model", "llama-2-70b", "--batch", "8", "--price-per-hour", "3"]
    two, eight = (as_json(*arguments, "--output", "9", "--chips", n) for n in ("4", "8"))
    assert eight["step_time_s"] == pytest.approx(two["step_time_s"] / 2, rel=1e-3)  # but for norms
    cost = "cost_per_million_tokens"
    assert eight[cost] == pytest.approx(two[cost], rel=1e-3)
    assert eight[cost] == pytest.approx(3 * eight["chip_hours_per_million_tokens"])


def test_a_latent_is_kept_by_every_chip() -> None:
    """DeepSeek-V3 in fp8 on 8 H200, as served: some 300 sequences of 4,096 tokens, not 3,175."""
    arguments = ["--model", "deepseek-v3", "--hardware", "h200", "--chips", "8"]
    arguments += ["--weights", "fp8", "--kv", "fp8", "--context", "4096", "--batch", "64"]
    found, even = as_json(*arguments), as_json(*arguments, "--split-cache", "evenly")
    assert found["cache_bytes_per_sequence"] == 4096 * 61 * 576
    assert even["cache_bytes_per_sequence"] == 4096 * 61 * 576 / 8
    assert 300 < found["max_batch"] < 400
    assert even["max_batch"] in range(8 * found["max_batch"], 8 * found["max_batch"] + 8)
    assert any("every chip keeps the whole cache" in line for line in found["warnings"])
    assert even["warnings"] == []


@pytest.mark.parametrize(
    ("chips", "queries", "keys", "says"),
    [
        (8, 8, 1, ""),
        (3, 24, 3, "64 query heads in 8 groups cannot be divided evenly over 3 chips"),
        (16, 4, 1, "8 KV heads over 16 chips: the fullest keeps 1, 12.5% of the cache"),
        (12, 8, 1, "the fullest has 8"),
        (1000, 1, 1, "12.5% of the cache where an even cut gives 0.1%"),
    ],
)
def test_heads_go_to_chips_with_their_groups_and_a_rest_is_said_and_counted(
    chips: int, queries: int, keys: int, says: str
) -> None:
    arch = catalog.model("llama-3-70b")
    part = chip_part(arch, chips)
    assert (queries, keys) == (part.N, part.K)
    w = Workload(n_chips=chips, context=4096, usable_fraction=1)
    p = plan_deployment(arch, replace(catalog.hardware("h100"), hbm_bytes=10**12), w)
    assert p.memory.cache_bytes == keys * 4096 * 80 * 2 * 128 * 2
    about_cuts = tuple(line for line in p.warnings if "no run" not in line)
    assert any(says in line for line in about_cuts) == (about_cuts != ())
    assert (says == "") == (about_cuts == ())


@pytest.mark.parametrize(("prompt", "output"), [(1, 5000), (5000, 70), (4000, 300), (4095, 2)])
def test_a_windowed_request_is_charged_what_its_steps_read_one_by_one(
    prompt: int, output: int
) -> None:
    """Not the cache at the mean context: while the window fills, most steps read less."""
    for name in ("gemma-2-9b", "mistral-7b"):
        arch, w = catalog.model(name), Workload(context=9000, n_prompt=prompt, n_output=output)
        d = Deployment(replace(arch, window=4096), catalog.hardware("h200"), w)
        caches = [d.cache_bytes(S) for S in range(prompt + 1, prompt + output)]
        assert d.mean_cache_bytes == float(sum(caches) / len(caches))
        flops = [d.step_flops(1, S) for S in range(prompt + 1, prompt + output)]
        assert d.mean_token_flops == pytest.approx(sum(flops) / len(flops), rel=1e-12)
        moved = d.w.batch * d.mean_cache_bytes + d.step_weight_bytes(1)
        assert d.mean_step(1).memory_s == pytest.approx(moved / d.chip.hbm_bytes_per_s)


@draws(60)
@given(
    st.sampled_from(["llama-3-8b", "llama-2-13b", "gpt-3", "qwen3-0.6b"]),
    st.sampled_from(["a100", "h100", "h200", "v5e", "mi300x"]),
    st.integers(1, 450),
)
def test_the_critical_batch_of_a_plan_is_that_of_the_formula(
    name: str, hardware: str, context: int
) -> None:
    """An untied embedding's row is one more thing that each sequence brings along."""
    arch, chip = catalog.model(name), roomy(catalog.hardware(hardware))
    row = 0 if arch.tied_embeddings else 2 * arch.D
    row += 2 * arch.D if arch.learned_positions else 0
    formula = critical_batch_of_step(
        arch.step_weight_bytes(1) - row,
        arch.cache_bytes(context) + row,
        arch.decode_step_flops(1, context),
        chip.peak_flops_per_s(),
        chip.hbm_bytes_per_s,
    )
    step = plan_deployment(arch, chip, Workload(context=context)).step
    assert step is not None
    if formula < 1000:  # so few sequences read fewer rows than a table has
        assert step.critical_batch == int(formula) + 1
    else:
        assert step.critical_batch is None or step.critical_batch >= 1000


def test_embeddings_of_narrow_checkpoints_stay_wide_and_groups_have_scales() -> None:
    a = catalog.model("llama-3-8b")
    parts = a.breakdown()
    wide = parts["embedding"] + parts["head"] + parts["norms"]
    narrow = parts["attention"] + parts["mlp"]
    for weights, bits, more in (
        ("int8", 8, []),
        ("int4", 4.125, []),
        ("fp4", 4.25, []),
        ("int4", 4 + (16 + 4) / 64, ["--group", "64", "--zero-bits", "4"]),
        ("int3", 3 + 16 / 32, ["--group", "32"]),
        ("int8", 8.5, ["--group", "32"]),
    ):
        found = as_json("--model", "llama-3-8b", "--weights", weights, *more)
        assert found["weight_bytes"] == wide * 2 + narrow * bits / 8
        assert "embedding, head, norms and router in bf16" in found["assumptions"][0]
    found = as_json("--model", "llama-3-8b", "--weights", "int8", "--embeddings", "int8")
    assert found["weight_bytes"] == a.n_params()


def test_narrow_weights_halve_the_floor_and_the_critical_batch() -> None:
    wide, narrow = (
        as_json(
            "--model", "worked-18b", "--hardware", "v5e", "--chips", "4", "--weights", w,
            "--embeddings", w,
        )
        for w in ("bf16", "int8")
    )  # fmt: skip
    assert narrow["step_time_floor_s"] * 2 == pytest.approx(wide["step_time_floor_s"])
    assert narrow["critical_batch_weights"] == pytest.approx(
        wide["critical_batch_weights"] / 2, 0.01
    )


def test_experts_are_read_as_far_as_the_batch_touches_them() -> None:
    arch = catalog.model("mixtral-8x7b")
    idle = arch.n_idle_expert_params()
    stored = arch.n_params() - arch.V * arch.D
    assert arch.step_weight_bytes(1) == pytest.approx(2 * (stored - idle + arch.D))
    assert arch.step_weight_bytes(10**4) == pytest.approx(2 * (stored + 10**4 * arch.D))


def test_the_critical_batch_of_experts_is_not_that_of_the_mlps_alone() -> None:
    """E/k times the dense one would be 295 x 8 / 2: attention is no expert."""
    found = as_json("--model", "mixtral-8x7b", "--chips", "2", "--context", "64")
    assert found["critical_batch_weights"] < 1181 * 0.97
    assert found["critical_batch_weights"] > 1181 * 0.9


# Properties over the whole range
# ------------------------------------------------------------------------------------------------

FORMATS = st.sampled_from(["bf16", "int8", "int4", "fp4", "fp32"])


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Any sizes, the smallest and odd ones included."""
    context = draw(st.integers(1, 40) | st.integers(1, 200_000))
    n_output = draw(st.none() | st.integers(1, max(1, context - 1)))
    if n_output is not None and context == 1:
        context = 2
    return Workload(
        batch=draw(st.integers(1, 8) | st.integers(1, 5000)),
        context=context,
        n_output=n_output,
        n_chips=draw(st.integers(1, 17) | st.integers(1, 300)),
        weights=draw(FORMATS),
        kv=draw(FORMATS),
        split_cache=draw(st.sampled_from(["heads", "evenly"])),
        activation_bytes=draw(st.integers(0, 10**10)),
        overhead_bytes=draw(st.integers(0, 10**10)),
        overhead_fraction=draw(st.integers(0, 100)) / 100,
        usable_fraction=draw(st.integers(50, 100)) / 100,
        price_per_chip_hour=draw(st.none() | st.floats(0, 100)),
    )


MODELS = st.sampled_from(list(catalog.MODELS.values()))
CHIPS = st.sampled_from(list(catalog.HARDWARE.values()))
BELOW = 1 + 1e-9  # sums of floats in another order


def steps_of(w: Workload) -> np.ndarray:
    """The contexts of a request's decode steps, one by one; without any, the mean context."""
    n_steps = (w.n_output or 1) - 1
    steps = np.arange(w.prompt + 1, w.prompt + n_steps + 1)
    return steps if n_steps else np.array([float(w.mean_context)])


def roomy(chip: Hardware) -> Hardware:
    """The same chip with memory for anything, so that times are not withheld."""
    return replace(chip, hbm_bytes=10**24)


@draws(20)
@given(MODELS, CHIPS, workloads())
def test_what_fits_is_what_the_largest_batch_says(
    arch: Architecture, chip: Hardware, w: Workload
) -> None:
    def fits(chip: Hardware = chip, **change: int) -> bool:
        return plan_deployment(arch, chip, replace(w, n_output=None, **change)).memory.fits

    m = plan_deployment(arch, chip, w).memory
    assert m.fits == (w.batch <= m.max_batch)
    assert not fits(batch=m.max_batch + 1)
    assert m.max_batch == 0 or fits(batch=m.max_batch)
    if m.max_context is not None:
        assert m.fits == (w.context <= m.max_context)
        assert not fits(context=m.max_context + 1)
        assert m.max_context == 0 or fits(context=m.max_context)
    if m.chips_needed is not None:
        assert m.fits == (w.n_chips >= m.chips_needed)
        assert fits(n_chips=m.chips_needed)
        assert m.chips_needed == 1 or not fits(n_chips=m.chips_needed - 1)


@draws(30)
@given(MODELS, workloads())
def test_a_memory_that_is_full_to_the_last_byte_holds_the_batch_and_a_byte_less_does_not(
    arch: Architecture, w: Workload
) -> None:
    w = replace(w, usable_fraction=1)
    chip = catalog.hardware("h100")
    total = Deployment(arch, chip, w).total_bytes(w.batch, w.context)
    full, short = math.ceil(total), math.ceil(total) - 1
    m = plan_deployment(arch, replace(chip, hbm_bytes=full), w).memory
    assert m.fits
    assert w.batch <= m.max_batch
    m = plan_deployment(arch, replace(chip, hbm_bytes=short), w).memory
    assert (m.fits, m.max_batch) == (False, w.batch - 1)


@draws(20)
@given(MODELS, CHIPS, workloads())
def test_the_critical_batch_is_where_what_binds_flips(
    arch: Architecture, chip: Hardware, w: Workload
) -> None:
    def binds(B: int) -> str:
        return plan_deployment(arch, roomy(chip), replace(w, batch=B)).binds

    step = plan_deployment(arch, roomy(chip), w).step
    assert step is not None
    if step.critical_batch is None:
        assert binds(10**12) == binds(w.batch) == "bandwidth"
    else:
        assert binds(step.critical_batch) == binds(2 * step.critical_batch) == "compute"
        assert step.critical_batch == 1 or binds(step.critical_batch - 1) == "bandwidth"
        assert binds(w.batch) == ("compute" if w.batch >= step.critical_batch else "bandwidth")
        assert step.critical_batch_weights is not None


@draws(30)
@given(MODELS, CHIPS, workloads())
def test_no_line_promises_more_than_another_allows(
    arch: Architecture, chip: Hardware, w: Workload
) -> None:
    p = plan_deployment(arch, roomy(chip), w)
    step, service = p.step, p.service
    assert step is not None
    assert service is not None
    assert step.step_time_floor_s <= step.step_time_s <= step.step_time_sum_s
    assert step.step_time_sum_s <= 2 * step.step_time_s * BELOW
    assert service.decode_tokens_per_s <= service.decode_ceiling_tokens_per_s * BELOW
    peak, bandwidth = chip.flops_per_s["bf16"], chip.hbm_bytes_per_s
    part, contexts = chip_part(arch, w.n_chips), steps_of(w)
    token_flops = float(np.mean(part.decode_step_flops(1, contexts)))
    assert service.decode_tokens_per_s * token_flops <= peak * BELOW
    if w.n_output is None:
        return
    rate, latency = service.requests_per_s, service.request_latency_s
    assert rate is not None
    assert latency is not None
    assert rate <= 1 / service.ttft_s * BELOW
    assert rate * latency == pytest.approx(w.batch)
    assert latency >= w.n_output * step.step_time_floor_s / BELOW
    prompt_flops = part.prefill_flops(1, w.prompt, head_at_last_only=True)
    assert rate * (prompt_flops + (w.n_output - 1) * token_flops) <= peak * BELOW
    whole = arch if w.split_cache == "evenly" else part
    cache = np.mean(whole.cache_bytes(contexts, bytes_per_value(w.kv)))
    cache /= w.n_chips if whole is arch else 1
    assert rate * (w.n_output - 1) * float(cache) <= bandwidth * BELOW
    assert service.tokens_per_s <= service.ceiling_tokens_per_s * BELOW
    assert service.tokens_per_s_sum <= service.tokens_per_s * BELOW
    assert service.tpot_s is None or service.tpot_s >= step.step_time_floor_s / BELOW


@draws(20)
@given(MODELS, CHIPS, workloads(), st.integers(1, 40), st.floats(1, 10))
def test_more_chips_or_more_bandwidth_never_make_it_slower_or_smaller(
    arch: Architecture, chip: Hardware, w: Workload, more: int, factor: float
) -> None:
    before = plan_deployment(arch, roomy(chip), w)
    chips = plan_deployment(arch, roomy(chip), replace(w, n_chips=w.n_chips + more))
    wider = roomy(replace(chip, hbm_bytes_per_s=chip.hbm_bytes_per_s * factor))
    bandwidth = plan_deployment(arch, wider, w)
    for after in (chips, bandwidth):
        assert after.memory.max_batch >= before.memory.max_batch
        assert after.step.step_time_s <= before.step.step_time_s
        assert after.service.ttft_s <= before.service.ttft_s
        assert after.service.decode_tokens_per_s >= before.service.decode_tokens_per_s / BELOW
        if w.n_output is not None:
            assert after.service.requests_per_s >= before.service.requests_per_s / BELOW


@draws(30)
@given(MODELS, st.integers(1, 300))
def test_the_parts_of_all_chips_hold_the_whole_model(arch: Architecture, n: int) -> None:
    part = chip_part(arch, n)
    assert chip_part(arch, 1) == arch
    assert n * part.n_params() >= arch.n_params()
    assert n * part.decode_step_flops(1, 100) >= arch.decode_step_flops(1, 100)
    assert n * part.prefill_flops(1, 100) >= arch.prefill_flops(1, 100)
    for name, size in part.breakdown().items():
        assert n * size >= arch.breakdown()[name] >= size


def test_a_config_file_or_its_folder_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY))
    found = as_json("--config", str(file))
    assert found == as_json("--config", str(tmp_path)) | {"model": found["model"]}
    assert found["n_params"] == 256 * 64 + 2 * (64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128) + 5 * 64
    assert found["workload"]["weights"] == "fp32"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert as_json("--config", str(file)) == found


def test_weights_have_the_format_that_a_quantized_config_says_unless_it_is_given(
    tmp_path: Path,
) -> None:
    def weights(how: object, *arguments: str) -> object:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(TINY | {"quantization_config": how}))
        return as_json("--config", str(file), *arguments)["workload"]["weights"]

    assert weights({"quant_method": "fp8", "weight_block_size": [128, 128]}) == "fp8"
    assert weights({"quant_method": "awq", "bits": 4}) == weights({"load_in_4bit": True}) == "int4"
    assert weights({"quant_method": "awq", "bits": 4}, "--weights", "bf16") == "bf16"
    assert weights({"quant_method": "mystery"}, "--weights", "int3") == "int3"
    assert weights(None) == "fp32"


@pytest.mark.parametrize(
    ("how", "group", "zero_bits"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, 64, 4),
        ({"quant_method": "gptq", "bits": 8, "group_size": 32, "sym": True}, 32, 8),
        ({"quant_method": "gptq", "bits": 4, "group_size": -1}, 64, 4),  # a row: the model's width
        ({"quant_method": "gptq", "bits": 4, "group_size": "x"}, None, 0),
        ({"load_in_8bit": True}, None, 0),
    ],
)
def test_groups_and_zero_points_are_those_of_a_quantized_config_unless_given(
    how: object, group: int | None, zero_bits: int, tmp_path: Path
) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY | {"quantization_config": how}))
    found = as_json("--config", str(file))["workload"]
    assert (found["group"], found["zero_bits"]) == (group, zero_bits)
    given = as_json("--config", str(file), "--group", "16", "--zero-bits", "0")["workload"]
    assert (given["group"], given["zero_bits"]) == (16, 0)
    other = as_json("--config", str(file), "--weights", "bf16")["workload"]
    assert (other["group"], other["zero_bits"]) == (None, 0)


def test_the_name_in_a_config_is_shown_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY | {"_name_or_path": "[red]a[/nope]\x1b[31m"}))
    shown = runner.invoke(app, ["--config", str(file)])
    assert shown.exit_code == 0
    assert shown.stdout.startswith("[red]a[/nope]\ufffd[31m on H100")


BAD = [
    (["--model", "lama-2-13b"], "Did you mean llama-2-13b"),
    (["--model", "llama-2-7b", "--hardware", "cray"], "Known: A100 80GB SXM"),
    ([], "Give either --model or --config"),
    (["--model", "gpt-3", "--config", "x"], "Give either --model or --config"),
    (["--model", "gpt-3", "--group", "64"], "Groups and zero points are of integers"),
    (["--model", "gpt-3", "--weights", "int4", "--group", "0"], "group must be a whole number"),
    (["--model", "gpt-3", "--weights", "int4", "--zero-bits", "-1"], "zero_bits must be from 0"),
    (["--model", "gpt-3", "--batch", "0"], "batch must be a whole number from 1"),
    (["--model", "gpt-3", "--batch", str(10**400)], "batch must be a whole number from 1"),
    (["--model", "gpt-3", "--context", "-4"], "context must be a whole number"),
    (["--model", "gpt-3", "--chips", "0"], "to 10^12, but it is 0"),
    (["--model", "gpt-3", "--prompt", "0"], "n_prompt must be a whole number"),
    (["--model", "gpt-3", "--prompt", "-5"], "n_prompt must be a whole number"),
    (["--model", "gpt-3", "--context", "10", "--output", "10"], "must fit the context"),
    (["--model", "gpt-3", "--weights", "int7"], "Unknown format 'int7'"),
    (["--model", "gpt-3", "--hardware", "v5e", "--compute", "fp8"], "It has: bf16, int8"),
    (["--model", "gpt-3", "--overhead", "-1"], "overhead_fraction must be zero or more"),
    (["--model", "gpt-3", "--price-per-hour", "nan"], "price_per_chip_hour must be"),
    (["--model", "gpt-3", "--price-per-hour", "1e308"], "at most 1e+24"),
    (["--model", "gpt-3", "--batch", str(10**13)], "batch must be a whole number from 1"),
    (
        ["--model", "gpt-3", "--context", "1", "--output", "5"],
        "must fit the context of 1 pos",
    ),
    (["--model", "gpt-3", "--output", "2000"], "must fit the context of 1024 positions"),
    (["--model", "gpt-3", "--usable", "0"], "usable_fraction must be from 0.001 to 1"),
    (["--model", "gpt-3", "--usable", "nan"], "usable_fraction must be from"),
    (["--model", "gpt-3", "--activations-gb", "inf"], "activation_bytes must be zero or more"),
    (["--model", "gpt-3", "--overhead", "2000"], "overhead_fraction must be zero or more"),
    (["--model", "gpt-3", "--split-cache", "half"], "split_cache must be heads or evenly"),
    (["--model", "gpt-3", "--embeddings", "int7"], "Unknown format 'int7'"),
    (["--config", "/no/such/config.json"], "Cannot read"),
]


@pytest.mark.parametrize(("arguments", "says"), BAD, ids=[" ".join(a)[:40] for a, _ in BAD])
def test_bad_input_ends_in_one_sentence_and_exit_code_2(arguments: list[str], says: str) -> None:
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


BAD_FILES = {
    "not json": (b"layers: 3", "is not JSON"),
    "empty": (b"", "is not JSON"),
    "binary": (b"\xff\xfe\x00", "is not JSON"),
    "deep": (b"[" * 200_000, "is not JSON"),
    "a list": (b"[1]", "must hold a JSON object"),
    "no type": (b"{}", "no key 'model_type'"),
    "another model": (b'{"model_type": "mamba"}', "Unsupported model_type 'mamba'"),
    "a switch of text": (
        json.dumps(TINY | {"tie_word_embeddings": "false"}).encode(),
        "'tie_word_embeddings' must be true or false, but it is 'false'",
    ),
    "a missing key": (json.dumps(TINY | {"hidden_size": None}).encode(), "no key 'hidden_size'"),
    "a size of text": (
        json.dumps(TINY | {"hidden_size": "64"}).encode(),
        "must be a positive integer",
    ),
    "too many layers": (
        json.dumps(TINY | {"num_hidden_layers": 10**12}).encode(),
        "beyond any transformer",
    ),
    "a huge size": (json.dumps(TINY | {"vocab_size": 10**400}).encode(), "beyond any transformer"),
    "a text_config that is none": (
        json.dumps(TINY | {"text_config": [], "dtype": "auto"}).encode(),
        "with --weights",
    ),
    "an unknown quantization": (
        json.dumps(TINY | {"quantization_config": "x"}).encode(),
        "with --weights",
    ),
    "an unknown dtype": (json.dumps(TINY | {"dtype": 7}).encode(), "dtype 7 is unknown"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_a_bad_config_ends_in_one_sentence_and_exit_code_2(case: str, tmp_path: Path) -> None:
    content, says = BAD_FILES[case]
    file = tmp_path / "config.json"
    file.write_bytes(content)
    result = runner.invoke(app, ["--config", str(file)])
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_help_shows_an_example() -> None:
    result = runner.invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "twophase plan --model llama-2-13b" in result.stdout
