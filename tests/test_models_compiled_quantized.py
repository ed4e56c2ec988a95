"""Quantized models decode in compiled loops as they do in torch, and what has no loop is named."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from patience import PATIENCE_S
from test_models_compiled import TOLERANCE, exact
from test_models_quantize import KINDS, SMALL, made, wide

from twophase.kernels.quantization.integers import IntegerFormat, encode
from twophase.models import checkpoints
from twophase.models.compiled import CompiledTransformer, transformer
from twophase.models.compiled.batch_linear import CodesLinear, with_batch_linears
from twophase.models.compiled.codes_run import CodesRun
from twophase.models.config import Config
from twophase.models.generate import generate
from twophase.models.quantize import quantize
from twophase.models.quantize.calibration import body_linears
from twophase.models.quantize.linear import QuantizedLinear
from twophase.models.transformer import Transformer

INT8 = IntegerFormat(8, "channel", scale_dtype=torch.float32)
INT4 = IntegerFormat(4, 8, scale_dtype=torch.bfloat16)
AFFINE = IntegerFormat(4, 8, affine=True)


def check_same(model: Transformer, run: CompiledTransformer, V: int) -> None:
    """Logits of a prompt and six steps after it, beside those of the same codes in fp64."""
    ids = torch.randint(0, V, (1, 12), generator=torch.Generator().manual_seed(2))
    oracle = exact(model)
    caches = [m.new_cache(1, 20) for m in (oracle, model)]
    for part in (ids[:, :6], *ids[:, 6:].split(1, dim=1)):
        expected, found = (
            m(part, cache, at=-1) for m, cache in zip((oracle, run), caches, strict=True)
        )
        deviation = float(expected.std())
        assert float((found - expected).abs().max()) < TOLERANCE * deviation


# each pair is compiled of its own, some seconds: so not all of them
@pytest.mark.parametrize(
    ("kind", "how", "parallel"),
    [
        ("gated", INT8, False),
        ("gated", INT8, True),
        ("gated", INT4, True),
        ("gated", AFFINE, False),
        ("four norms, norms of heads", INT4, False),
    ],
)
def test_a_quantized_model_decodes_in_loops(kind: str, how: IntegerFormat, parallel: bool) -> None:
    model = quantize(made(kind), "nearest", how)
    run = CompiledTransformer(model, parallel=parallel)
    assert not run.plain
    in_one = any(isinstance(half, CodesRun) for half in run._halves)  # its two layers
    assert in_one == (kind == "gated")
    check_same(model, run, KINDS[kind].V)


@pytest.mark.parametrize("how", [INT8, INT4], ids=str)
def test_two_cores_share_the_rows_of_codes(
    how: IntegerFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In two parts, on as many threads as there are; widths of two tiles and a bit."""
    sizes = SMALL | {"D": 264, "F": 304}
    model = quantize(made(Config(**sizes, tied=False)), "nearest", how)
    monkeypatch.setattr(transformer, "workers_of_parallel_loops", lambda: 2)
    check_same(model, CompiledTransformer(model, parallel=True), 50)


def test_a_run_of_layers_of_codes_has_every_bias_and_norm_and_other_widths() -> None:
    """Heads are shared and together wider than the stream; so the groups of all four products are
    of different numbers."""
    sizes = SMALL | {"K": 2, "H": 8}
    config = Config(
        **sizes, tied=False, qkv_bias=True, o_bias=True, mlp_bias=True, norm="layer", qk_norm=True
    )  # fmt: skip
    model = quantize(made(config), "nearest", INT4)
    run = CompiledTransformer(model, parallel=True)
    assert [type(half) for half in run._halves] == [CodesRun]
    check_same(model, run, config.V)


@pytest.mark.parametrize("name", ["q8_0", "q4_0"])
def test_blocks_of_gguf_without_minima_have_loops_for_every_half(name: str) -> None:
    """Their products: tests/test_kernels_compiled_quantized.py."""
    model = quantize(wide(), "nearest", name)
    run = CompiledTransformer(model, parallel=False)
    assert not run.plain
    layers = [m for m in run._of_batches().modules() if isinstance(m, CodesLinear)]
    assert len(layers) == len(body_linears(wide()))


@pytest.mark.parametrize("how", [INT8, AFFINE], ids=str)
def test_a_batch_reads_codes_in_loops_and_finds_the_same(how: IntegerFormat) -> None:
    model = quantize(made("gated"), "nearest", how)
    run = CompiledTransformer(model, parallel=False)
    ids = torch.randint(0, KINDS["gated"].V, (3, 9), generator=torch.Generator().manual_seed(2))
    caches = [model.new_cache(3, 12) for _ in range(2)]
    for part in (ids[:, :6], *ids[:, 6:].split(1, dim=1)):
        expected, found = (
            m(part, cache, at=-1) for m, cache in zip((model, run), caches, strict=True)
        )
        assert float((found - expected).abs().max()) < TOLERANCE * float(expected.std())
    assert any(isinstance(module, CodesLinear) for module in run._of_batches().modules())


@pytest.mark.parametrize(("K", "copied"), [(4, set()), (1, {"v_proj"})])
def test_a_batch_reads_the_very_codes_that_one_sequence_reads(K: int, copied: set[str]) -> None:
    """Keys of one head of 96 end inside a tile of 128 rows, and values begin there."""
    config = Config(**{**SMALL, "L": 1, "N": 4, "K": K, "H": 96}, tied=True)
    run = CompiledTransformer(quantize(made(config), "nearest", INT8), parallel=False)
    known = [w.arrays[0] for w in run._work.codes.values()]
    found = {
        name.rsplit(".", 1)[-1]: any(np.shares_memory(m.packed.arrays[0], w) for w in known)
        for name, m in run._of_batches().named_modules()
        if isinstance(m, CodesLinear)
    }
    assert len(found) == 7
    assert {name for name, shared in found.items() if not shared} == copied


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float16, 2**-11), (torch.float64, 0)])
def test_codes_are_read_for_tokens_of_a_dtype_that_loops_do_not_read(
    dtype: torch.dtype, digits: float
) -> None:
    """Summed in fp32, 64 terms; rounded to the digits of the dtype."""
    torch.manual_seed(0)
    linear = QuantizedLinear(encode(torch.randn(130, 64), INT4))
    x = torch.randn(3, 64).to(dtype)
    expected = x.double() @ linear.stored.decode().double().T
    found = CodesLinear(linear)(x)
    assert found.dtype == dtype
    off = float((found.double() - expected).abs().max() / expected.abs().max())
    assert off < 2e-5 + digits


def test_a_model_that_is_not_on_the_cpu_stays_as_it_is() -> None:
    model = quantize(made("gated"), "nearest", INT8).to("meta")
    assert with_batch_linears(model, pack=True) is model


def test_a_trained_model_in_four_bits_writes_the_same_text_on_both_paths() -> None:
    model = quantize(checkpoints.load("gqa"), "nearest", IntegerFormat(4, 64))
    prompt = list(b"def read")
    texts = [list(generate(model, prompt, 30, path=path)) for path in ("plain", "compiled")]
    assert texts[0] == texts[1]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        (IntegerFormat(3, 8), "codes of 4 or 8 bits"),
        (IntegerFormat(4, 7), "groups of a multiple of 8"),
    ],
)
def test_formats_without_loops_run_in_torch_and_are_named(how: IntegerFormat, why: str) -> None:
    model = quantize(made("gated"), "nearest", how)
    run = CompiledTransformer(model)
    assert len(run.plain) == 4
    assert all(why in reason for reason in run.plain.values())
    check_same(model, run, 50)


def test_named_formats_without_loops_run_in_torch_and_are_named() -> None:
    model = quantize(wide(), "nearest", "q4_k")
    run = CompiledTransformer(model)
    assert set(run.plain.values()) == {
        "q5_0 has no loop; of formats with a name, q8_0 and q4_0 have"
    }


def test_a_plain_mlp_of_codes_runs_in_torch_and_its_attention_in_loops() -> None:
    model = quantize(made("grouped, biases, no gate"), "nearest", INT4)
    run = CompiledTransformer(model)
    assert sorted(run.plain) == ["MLP of layer 0", "MLP of layer 1"]
    check_same(model, run, 50)


def test_layers_of_two_kinds_side_by_side_run_in_torch() -> None:
    model = quantize(made("gated"), "nearest", INT4)
    plain = made("gated")
    model.layers[0].self_attn.k_proj = plain.layers[0].self_attn.k_proj
    run = CompiledTransformer(model)
    assert list(run.plain) == ["attention of layer 0"]
    check_same(model, run, 50)


def test_other_codes_after_the_loops_were_made_are_noticed() -> None:
    model = quantize(made("gated"), "nearest", INT4)
    run = CompiledTransformer(model)
    check_same(model, run, 50)
    model.layers[0].mlp.up_proj.scales.mul_(2)
    with pytest.raises(ValueError, match="changed after its loops were made"):
        check_same(model, run, 50)


@pytest.mark.more
def test_no_index_of_a_decode_step_is_out_of_bounds(tmp_path: Path) -> None:
    """Layers of codes, half by half and in one call, in a process of its own with a cache of its
    own: every index checked. What is fast is of no interest here."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, "-k", "decodes_in_loops and (how1 or how2)", Path(__file__).name],
        env={k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
        | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "1"},
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert run.returncode == 0, (run.stdout + run.stderr)[-2000:]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_the_default_dtype_of_torch_changes_nothing_for_codes(dtype: torch.dtype) -> None:
    model = quantize(made("gated"), "nearest", INT4)
    run = CompiledTransformer(model)
    for tokens in (torch.tensor([[3]]), torch.tensor([[3], [4]]), torch.tensor([[3, 4, 5]])):
        expected = run(tokens, model.new_cache(len(tokens), 4))
        torch.set_default_dtype(dtype)
        try:
            found = run(tokens, model.new_cache(len(tokens), 4))
        finally:
            torch.set_default_dtype(torch.float32)
        assert found.dtype == expected.dtype
        assert (found - expected).abs().max() < TOLERANCE * expected.std()


def test_threads_that_first_want_a_batch_make_one_copy_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = quantize(made("gated"), "nearest", INT4)
    run, copies, meet = CompiledTransformer(model), [], threading.Barrier(3)

    def slowly(*given: Any) -> Transformer:
        copies.append(given)
        time.sleep(0.05)
        return with_batch_linears(*given)

    def step() -> None:
        meet.wait()
        run(torch.tensor([[3], [4]]), model.new_cache(2, 4))

    monkeypatch.setattr(transformer, "with_batch_linears", slowly)
    threads = [threading.Thread(target=step) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(copies) == 1
