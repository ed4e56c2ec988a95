"""`twophase plan` says what the formulas say, in words and as JSON, and refuses nonsense in one
sentence."""

import json
from pathlib import Path

import pytest
import typer
from draws import draws
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from twophase.cli.plan import plan
from twophase.theory import catalog
from twophase.theory.plan import Workload, plan_deployment, step_weight_bytes

app = typer.Typer()
app.command()(plan)
runner = CliRunner()
EXAMPLE = ["--model", "llama-2-13b", "--hardware", "h100", "--batch", "64", "--context", "1024"]

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


def as_json(*arguments: str) -> dict:
    result = runner.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_the_example_on_an_h100() -> None:
    found = as_json(*EXAMPLE)
    assert found["schema"] == 1
    assert found["weight_bytes"] == 2 * 13_015_864_320
    assert found["cache_bytes"] == 64 * 1024 * 819_200
    assert found["total_bytes"] == pytest.approx(79.72e9, rel=1e-4)
    assert found["fits"] is True
    assert found["max_batch"] == 70
    assert found["critical_batch"] == pytest.approx(295.2, abs=0.05)
    assert found["step_time_floor_s"] == pytest.approx(7.771e-3, rel=1e-3)
    assert found["step_time_s"] == pytest.approx(23.80e-3, rel=1e-3)
    assert found["throughput_tokens_per_s"] == pytest.approx(2689.5, abs=0.1)
    assert found["binds"] == "bandwidth"
    assert found["cost_per_million_tokens"] is None


def test_the_table_carries_what_a_reader_looks_for() -> None:
    result = runner.invoke(app, [*EXAMPLE, "--price-per-hour", "2.5", "--output", "100"])
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    for part in (
        "26.03 GB",
        "53.69 GB",
        "fits 85.52 GB",
        "295",
        "7.771 ms",
        "2,689.5 tokens/s",
        "only 6.8% of memory",
    ):
        assert part in text
    for part in (
        "Largest batch that fits 70",
        "Cost per million tokens 0.258",
        "Latency of a request",
        "Assumed",
    ):
        assert part in text


def test_what_does_not_fit_says_so() -> None:
    found = as_json("--model", "llama-2-13b", "--hardware", "h100", "--batch", "71")
    assert (found["fits"], found["binds"], found["max_batch"]) == (False, "memory", 70)
    found = as_json("--model", "gpt-3", "--hardware", "a100")
    assert (found["fits"], found["max_batch"], found["max_context"]) == (False, 0, 0)


def test_large_batches_of_short_contexts_are_compute_bound() -> None:
    found = as_json(
        "--model", "llama-3-8b", "--hardware", "h100", "--batch", "1000", "--context", "16"
    )
    assert found["binds"] == "compute"
    assert found["step_time_s"] == found["step_compute_s"] > found["step_memory_s"]


def test_a_request_waits_for_its_prompt_then_for_each_further_token() -> None:
    found = as_json("--model", "llama-3-8b", "--prompt", "1000", "--output", "200", "--batch", "8")
    assert found["workload"]["context"] == 1200
    assert found["request_latency_s"] == pytest.approx(found["ttft_s"] + 199 * found["step_time_s"])
    assert found["requests_per_s"] == pytest.approx(8 / found["request_latency_s"])


def test_chips_share_evenly_and_the_price_is_per_chip() -> None:
    one = as_json("--model", "llama-2-70b", "--batch", "8", "--price-per-hour", "3")
    eight = as_json(
        "--model", "llama-2-70b", "--batch", "8", "--price-per-hour", "3", "--chips", "8"
    )
    assert eight["step_time_s"] == pytest.approx(one["step_time_s"] / 8)
    assert eight["cost_per_million_tokens"] == pytest.approx(one["cost_per_million_tokens"])
    assert eight["cost_per_million_tokens"] == pytest.approx(
        3 * eight["chip_hours_per_million_tokens"]
    )


def test_narrow_weights_halve_the_floor_and_the_critical_batch() -> None:
    wide, narrow = (
        as_json("--model", "worked-18b", "--hardware", "v5e", "--weights", w)
        for w in ("bf16", "int8")
    )
    assert narrow["step_time_floor_s"] * 2 == pytest.approx(wide["step_time_floor_s"])
    assert narrow["critical_batch"] * 2 == pytest.approx(wide["critical_batch"])


def test_experts_are_read_as_far_as_the_batch_touches_them() -> None:
    arch = catalog.model("mixtral-8x7b")
    idle = arch.n_idle_expert_params()
    assert step_weight_bytes(arch, 1) == pytest.approx(2 * (arch.n_params() - idle))
    assert step_weight_bytes(arch, 10**4) == pytest.approx(2 * arch.n_params())
    assert as_json("--model", "mixtral-8x7b")["critical_batch"] == pytest.approx(
        4 * 295.22, rel=1e-4
    )


@draws(40)
@given(
    st.sampled_from(sorted(catalog.MODELS)),
    st.sampled_from(sorted(catalog.HARDWARE)),
    st.integers(1, 300),
    st.integers(1, 200_000),
    st.integers(1, 64),
    st.floats(0, 0.3),
)
def test_limits_are_tight(
    model: str, chip: str, batch: int, context: int, chips: int, overhead: float
) -> None:
    def fits(**change: int) -> bool:
        w = Workload(
            **{"batch": batch, "context": context, "n_chips": chips, "overhead_fraction": overhead}
            | change
        )
        return plan_deployment(catalog.model(model), catalog.hardware(chip), w).fits

    w = Workload(batch=batch, context=context, n_chips=chips, overhead_fraction=overhead)
    found = plan_deployment(catalog.model(model), catalog.hardware(chip), w)
    assert found.fits == (batch <= found.max_batch)
    assert not fits(batch=found.max_batch + 1)
    if found.max_batch:
        assert fits(batch=found.max_batch)
    if found.max_context is None:
        assert found.fits
    else:
        assert found.fits == (context <= found.max_context)
        assert not fits(context=found.max_context + 1)
    assert (
        found.step_time_floor_s
        <= found.step_time_s
        <= found.step_time_sum_s
        <= 2 * found.step_time_s
    )


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
    (["--model", "gpt-3", "--batch", "0"], "batch must be a whole number from 1"),
    (["--model", "gpt-3", "--batch", str(10**400)], "batch must be a whole number from 1"),
    (["--model", "gpt-3", "--context", "-4"], "context must be a whole number"),
    (["--model", "gpt-3", "--chips", "0"], "n_chips must be a whole number"),
    (["--model", "gpt-3", "--prompt", "0"], "n_prompt must be a whole number"),
    (["--model", "gpt-3", "--context", "10", "--output", "10"], "must fit the context"),
    (["--model", "gpt-3", "--weights", "int7"], "Unknown format 'int7'"),
    (["--model", "gpt-3", "--hardware", "v5e", "--compute", "fp8"], "It has: bf16, int8"),
    (["--model", "gpt-3", "--overhead", "-1"], "overhead_fraction must be zero or more"),
    (["--model", "gpt-3", "--price-per-hour", "nan"], "price_per_chip_hour must be"),
    (["--model", "gpt-3", "--price-per-hour", "1e308"], "at most 10^24"),
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
