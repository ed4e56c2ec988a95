"""Accelerators as four numbers: FLOP/s by format, memory bandwidth, memory size, interconnect."""

from dataclasses import dataclass, field

from twophase.theory._domain import Number
from twophase.theory.arithmetic_intensity import critical_intensity

BYTES_PER_VALUE: dict[str, float] = {
    "fp64": 8,
    "fp32": 4,
    "tf32": 4,
    "bf16": 2,
    "fp16": 2,
    "fp8": 1,
    "int8": 1,
    "fp4": 0.5,
    "int4": 0.5,
    "int3": 0.375,
    "int2": 0.25,
}

OVERHEADS = ("layer_s", "layer_s_per_sequence", "prompt_factor")


def bytes_per_value(dtype: str) -> float:
    """Bytes of one value of a format, scales not counted. ValueError for an unknown one, listing
    the known."""
    if dtype not in BYTES_PER_VALUE:
        raise ValueError(f"Unknown format {dtype!r}. Known formats: {', '.join(BYTES_PER_VALUE)}.")
    return BYTES_PER_VALUE[dtype]


@dataclass(frozen=True)
class Hardware:
    """One chip. FLOP/s are dense rates: vendors print twice as much for 2:4 sparse matrices.

    Bandwidth is the rate of reading main memory (HBM on accelerators, DRAM on a laptop).
    `link_bytes_per_s` counts both directions; `link` says what it adds up. `measured` marks numbers
    that this package took on a machine. `overheads`: what an engine on this chip spends beyond the
    floor, if that is known: seconds `layer_s` a layer and step and `layer_s_per_sequence`, and
    `prompt_factor`, how many times as long as at the peak rate a prompt takes.
    """

    name: str
    flops_per_s: dict[str, float] = field(hash=False)
    hbm_bytes_per_s: float
    hbm_bytes: float
    link_bytes_per_s: float | None = None
    link: str = ""
    source: str = ""
    date: str = ""
    measured: bool = False
    overheads: dict[str, float] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        rates = [*self.flops_per_s.values(), self.hbm_bytes_per_s, self.hbm_bytes]
        if not self.flops_per_s or not all(rate > 0 for rate in rates):
            raise ValueError(
                f"{self.name}: FLOP/s, bandwidth and memory must be positive, but they are {rates}."
            )
        own = self.overheads
        if own is not None and not (
            set(own) == set(OVERHEADS)
            and all(0 <= own[name] < 1e6 for name in OVERHEADS)
            and own["prompt_factor"] >= 1
        ):
            raise ValueError(
                f"{self.name}: overheads must give {', '.join(OVERHEADS)}, all below 1e6, the first"
                f" two in seconds and zero or more, the last 1 or more, but they are {own}."
            )

    def peak_flops_per_s(self, dtype: str = "bf16") -> float:
        """Dense FLOP/s in a format. ValueError if the chip has no figure for it, listing those it
        has."""
        if dtype not in self.flops_per_s:
            known = ", ".join(self.flops_per_s)
            raise ValueError(f"{self.name} has no FLOP/s figure for {dtype!r}. It has: {known}.")
        return self.flops_per_s[dtype]

    def critical_intensity(self, dtype: str = "bf16") -> Number:
        """FLOPs per byte at which compute and memory take equally long."""
        return critical_intensity(self.peak_flops_per_s(dtype), self.hbm_bytes_per_s)


def usual_compute(chip: Hardware, weights: str) -> str:
    """The format in which engines run the products of weights stored in `weights`: fp8 and fp4
    (NVFP4, too) as they are where the chip has a rate for them, all else (integers are unpacked
    first) in bf16."""
    multiplied = "fp4" if weights == "nvfp4" else weights
    narrow = multiplied in ("fp8", "fp4") and multiplied in chip.flops_per_s
    wide = "bf16" if "bf16" in chip.flops_per_s else next(iter(chip.flops_per_s))
    return multiplied if narrow else wide
