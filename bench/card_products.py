"""The parts of `card.py` that need no model: the card's rates, products of one matrix with ever
more rows, and products in eight bits."""

from __future__ import annotations

from functools import partial

import torch
from card_timing import Bench, Call, Make, captured, driver_says, precision_of_fp32, sentence

from twophase.measure.card_runs import Fact, Run
from twophase.measure.machine import calibrate
from twophase.measure.yardsticks import forget_buffer
from twophase.theory.arithmetic_intensity import matmul_bytes, matmul_flops
from twophase.theory.catalog import model

# Powers of two, and more where an H100 should bend: at 295 rows, by its data sheet.
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 288, 320, 384, 512, 768, 1024, 2048, 4096, 8192)
COPIES = 8  # of the matrix, so that none is read from a card's cache, which holds 50 MB
PASSES = 3  # through all copies, in one graph


def calibration(bench: Bench) -> None:
    """What `calibrate` finds, and what it does not look at: large copies, products of ones."""
    try:
        made = calibrate(0.2 if bench.small else 10.0, device=bench.device, **_sizes(bench))
        rates = {f"{name}_flops_per_s": rate for name, rate in made.hardware.flops_per_s.items()}
        facts: dict[str, Fact] = {
            "read_bytes_per_s": made.hardware.hbm_bytes_per_s,
            "buffer_bytes": made.buffer_bytes,
            **rates,
            **{f"{name}_spread": spread for name, spread in made.spread.items()},
        }
        found = Run("calibration", "rates", "as `calibrate` finds them", facts=facts)
    except Exception as error:
        found = Run("calibration", "rates", "as `calibrate` finds them", error=sentence(error))
    bench.write(found)
    forget_buffer()
    bench.free()
    n = 2**20 if bench.small else 2**33
    copies = 2 * n  # read once, written once
    bench.run("calibration", "copy", "eager", partial(_copy, bench, n), calls=4, n_bytes=copies)
    bench.run("calibration", "fill", "eager", partial(_fill, bench, n), calls=4, n_bytes=n)
    for way, dtype, same, each in (
        ("bf16, random numbers", torch.bfloat16, False, 10),
        ("bf16, all ones", torch.bfloat16, True, 10),
        ("fp32, random numbers", torch.float32, False, 1),
    ):
        _square(bench, "calibration", way, partial(_product, bench, dtype, same), each)
    if bench.on_card:
        with precision_of_fp32("high"):
            make = partial(_product, bench, torch.float32, False)
            _square(bench, "calibration", "tf32, random numbers", make)


def memory(bench: Bench) -> None:
    """What of a card's memory is gone before the first tensor, and when a tensor takes its own:
    once it is made, or once it is written."""
    if not bench.on_card:
        return
    try:
        free, total = torch.cuda.mem_get_info()
        before = total - free - torch.cuda.memory_reserved()
        made = torch.empty(2**33, dtype=torch.uint8, device="cuda")
        when_made = free - torch.cuda.mem_get_info()[0]
        made.fill_(1)
        torch.cuda.synchronize()
        facts: dict[str, Fact] = {
            "total_bytes": total,
            "context_bytes": before,  # the driver's, the libraries', other processes'
            "tensor_bytes": made.nbytes,
            "taken_when_made_bytes": when_made,
            "taken_when_written_bytes": free - torch.cuda.mem_get_info()[0],
        }
        bench.write(Run("memory", "8 GiB", "as the driver counts", facts=facts))
    except Exception as error:
        bench.write(Run("memory", "8 GiB", "as the driver counts", error=sentence(error)))


def rows(bench: Bench) -> None:
    """One matrix of Llama-3-8B times B rows, from memory each time."""
    a = model("llama-3-8b")
    D, F = (64, 128) if bench.small else (a.D, a.F)
    way = "captured" if bench.on_card else "eager"
    weights = [_random(bench, (F, D), torch.bfloat16) for _ in range(COPIES)]  # [F, D] each
    for B in ROWS[:4] if bench.small else ROWS:
        bench.run(
            "rows",
            "one matrix of llama-3-8b",
            way,
            partial(_rows, bench, weights, B),
            calls=COPIES * PASSES,
            seconds=0.2,
            n_bytes=matmul_bytes(B, D, F),
            flops=matmul_flops(B, D, F),
            B=B,
            D=D,
            F=F,
        )


def formats(bench: Bench) -> None:
    """Square products in eight bits."""
    _square(bench, "formats", "int8, random numbers", partial(_int8, bench))
    for fast in (True, False):
        kept = "quick sums" if fast else "sums in fp32"
        _square(bench, "formats", f"fp8, {kept}, random numbers", partial(_fp8, bench, fast))


def _sizes(bench: Bench) -> dict[str, int]:
    return {"read_bytes": 2**20, "gemm_size": 64} if bench.small else {}


def _random(bench: Bench, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Normal numbers, made on the device."""
    return torch.empty(shape, device=bench.device, dtype=dtype).normal_()


def _width(bench: Bench) -> int:
    return 64 if bench.small else 8192


def _square(bench: Bench, part: str, way: str, make: Make, each: int = 10) -> None:
    """Time a square product for a second, in which a card's clock settles."""
    n = _width(bench)
    seconds = 0.05 if bench.small else 1.0
    bench.run(
        part,
        "square product",
        way,
        partial(_several, bench, make, each),
        calls=each,
        seconds=seconds,
        flops=2.0 * n**3,
        D=n,
    )


def _several(bench: Bench, make: Make, each: int) -> tuple[Call, dict[str, Fact]]:
    """A product many times, so that waiting for it does not count; and the clock then."""
    call, facts = make()

    def product() -> None:
        for _ in range(each):
            call()

    if bench.on_card:
        for _ in range(2 if bench.small else 60):  # the driver is asked while these run
            product()
        asked = "clocks.sm,power.draw"
        said = driver_says(asked)
        torch.cuda.synchronize()
        facts = facts | ({} if said is None else {"clock": f"{asked}: {said}"})
    return product, facts


def _product(bench: Bench, dtype: torch.dtype, ones: bool) -> tuple[Call, dict[str, Fact]]:
    n = _width(bench)
    a, b = (_random(bench, (n, n), dtype) for _ in range(2))  # [n, n] each
    if ones:
        a, b = a.fill_(1), b.fill_(1)
    out = torch.empty(n, n, device=bench.device, dtype=dtype)
    return lambda: torch.mm(a, b, out=out), {}


def _int8(bench: Bench) -> tuple[Call, dict[str, Fact]]:
    n = _width(bench)
    a, b = (
        torch.randint(-127, 128, (n, n), device=bench.device, dtype=torch.int8) for _ in range(2)
    )
    # a card wants the second matrix column by column
    return lambda: torch._int_mm(a, b.t()), {}


def _fp8(bench: Bench, fast: bool) -> tuple[Call, dict[str, Fact]]:
    n = _width(bench)
    a, b = (_random(bench, (n, n), torch.bfloat16).to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device=bench.device)
    options = {"scale_a": one, "scale_b": one, "out_dtype": torch.bfloat16}
    return lambda: torch._scaled_mm(a, b.t(), use_fast_accum=fast, **options), {}


def _copy(bench: Bench, n: int) -> tuple[Call, dict[str, Fact]]:
    a, b = (torch.ones(n // 4, device=bench.device) for _ in range(2))

    def copies() -> None:
        for _ in range(4):
            b.copy_(a)

    return copies, {"bytes": "read and written"}


def _fill(bench: Bench, n: int) -> tuple[Call, dict[str, Fact]]:
    a = torch.empty(n // 4, device=bench.device)

    def fills() -> None:
        for _ in range(4):
            a.fill_(1.0)

    return fills, {}


def _rows(bench: Bench, weights: list[torch.Tensor], B: int) -> tuple[Call, dict[str, Fact]]:
    F, D = weights[0].shape
    x = _random(bench, (B, D), torch.bfloat16)
    out = torch.empty(B, F, device=bench.device, dtype=torch.bfloat16)

    def products() -> None:
        for _ in range(PASSES):
            for w in weights:
                torch.mm(x, w.t(), out=out)  # [B, F]

    return (captured(products) if bench.on_card else products), {}
