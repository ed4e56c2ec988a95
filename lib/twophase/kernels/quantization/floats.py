"""Floating-point formats out of three numbers: bits of exponent and mantissa, and what the last
codes mean.

A code is sign, exponent e, mantissa f. With e > 0 it stands for ±2**(e − bias)·(1 + f / 2**m), with
e = 0 for ±2**(1 − bias)·f / 2**m (subnormal): so codes without their sign count up in the order of
their values, and the next code is the next number. Rounding is to nearest, to the even code in the
middle (IEEE 754-2019, section 4.3.1).
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class FloatFormat:
    """A binary format of 1 + exponent_bits + mantissa_bits bits.

    `top` says what the largest codes are: "inf", the last exponent holds infinity and NaN (IEEE);
    "nan", the very last code is NaN and there is no infinity (e4m3 of OCP); "finite", all of them
    are numbers (e2m1).
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    top: str = "inf"

    @property
    def bits(self) -> int:
        """Bits of a code."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @property
    def bias(self) -> int:
        """What is taken from the stored exponent."""
        return int(2 ** (self.exponent_bits - 1)) - 1

    @property
    def largest_code(self) -> int:
        """The code of the largest finite number."""
        last = (1 << (self.exponent_bits + self.mantissa_bits)) - 1
        return last - {"inf": 1 << self.mantissa_bits, "nan": 1, "finite": 0}[self.top]

    @property
    def largest(self) -> float:
        """The largest finite number."""
        return float(self.decode(torch.tensor([self.largest_code]))[0])

    def encode(self, x: torch.Tensor, saturate: bool = False) -> torch.Tensor:
        """Codes, int64 of x's shape, of the numbers nearest to x (a float tensor).

        What is rounded beyond the largest number becomes infinity, or NaN where there is none;
        with `saturate` the largest number. Raises ValueError where the format has no code for it.
        """
        if not x.is_floating_point():
            raise ValueError(f"{self.name} encodes floating-point tensors; got {x.dtype}.")
        exact = x.detach().double()
        size = exact.abs().nan_to_num(0.0, posinf=0.0)
        exponent = torch.where(size == 0, 1 - self.bias, exponent_of(size))
        exponent = exponent.clamp(min=1 - self.bias)
        steps = size * power_of_two(self.mantissa_bits - exponent)  # in units of the last place
        codes = (exponent + self.bias - 1 << self.mantissa_bits) + steps.round().long()
        over = (codes > self.largest_code) | exact.isinf()
        if saturate:
            codes = codes.clamp(max=self.largest_code).where(~exact.isinf(), self.largest_code)
        elif over.any():
            codes = torch.where(over, self._past_the_end(), codes)
        if exact.isnan().any():
            codes = torch.where(exact.isnan(), self._nan(), codes)
        return codes | torch.signbit(exact).long() << self.bits - 1

    def decode(self, codes: torch.Tensor) -> torch.Tensor:
        """The numbers, float64 of the codes' shape. Raises ValueError for what is no code."""
        whole = codes.long()
        if whole.numel() and not 0 <= int(whole.min()) <= int(whole.max()) < 1 << self.bits:
            raise ValueError(f"a code of {self.name} has {self.bits} bits.")
        size = whole & (1 << self.bits - 1) - 1
        exponent, fraction = size >> self.mantissa_bits, size & (1 << self.mantissa_bits) - 1
        normal = exponent > 0
        mantissa = fraction + (normal.long() << self.mantissa_bits)
        scale = exponent.clamp(min=1) - self.bias - self.mantissa_bits
        value = mantissa.double() * power_of_two(scale)
        if self.top == "inf":
            value = torch.where(size == self.largest_code + 1, torch.inf, value)
        if self.top != "finite":
            nan = size > self.largest_code + (self.top == "inf")
            value = torch.where(nan, torch.nan, value)
        return torch.where(whole >> self.bits - 1 == 1, -value, value)

    def _past_the_end(self) -> int:
        if self.top == "finite":
            raise ValueError(
                f"{self.name} ends at {self.largest:g} and has no infinity: scale the numbers, or"
                " encode them with saturate=True."
            )
        return self.largest_code + 1  # infinity, or NaN where the format has none

    def _nan(self) -> int:
        if self.top == "finite":
            raise ValueError(f"{self.name} has no NaN.")
        return (1 << self.bits - 1) - 1


def exponent_of(x: torch.Tensor) -> torch.Tensor:
    """floor(log2 x) of positive numbers, exactly, int64; of 0 a number that means nothing."""
    return torch.frexp(x).exponent.long() - 1  # its mantissa lies in [1/2, 1)


def power_of_two(exponent: torch.Tensor) -> torch.Tensor:
    """2**exponent in fp64, exactly, for exponents from −1022 to 1023 (torch.ldexp takes its powers
    in fp32, where these overflow)."""
    return (exponent.long() + 1023 << 52).view(torch.float64)


FP32 = FloatFormat("fp32", 8, 23)
FP16 = FloatFormat("fp16", 5, 10)
BF16 = FloatFormat("bf16", 8, 7)
E5M2 = FloatFormat("fp8 e5m2", 5, 2)
E4M3 = FloatFormat("fp8 e4m3", 4, 3, top="nan")
E2M1 = FloatFormat("fp4 e2m1", 2, 1, top="finite")
E3M2 = FloatFormat("fp6 e3m2", 3, 2, top="finite")
E2M3 = FloatFormat("fp6 e2m3", 2, 3, top="finite")
