"""Formats that have a name and no options, behind one door: a matrix in one of them is a few
tensors, of shapes that its own shape gives, as a file or a layer holds them."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from twophase.kernels.quantization.floats import E4M3
from twophase.kernels.quantization.gguf import CODECS
from twophase.kernels.quantization.integers import IntegerFormat, Integers, from_codes
from twophase.kernels.quantization.microscaling import BLOCK as MX_BLOCK
from twophase.kernels.quantization.microscaling import ELEMENTS, Microscaled, encode_mx
from twophase.kernels.quantization.normal_float import BLOCK as NF4_BLOCK
from twophase.kernels.quantization.normal_float import OUTER_BLOCK, NormalFloat, encode_nf4
from twophase.kernels.quantization.numbers import check_numbers
from twophase.kernels.quantization.nvfp4 import BLOCK as NVFP4_BLOCK
from twophase.kernels.quantization.nvfp4 import NVFP4, encode_nvfp4
from twophase.kernels.span import whole
from twophase.theory.quantization import BLOCK_FORMATS, format_of_rows, packed_bytes

Tensors = dict[str, torch.Tensor]
Layout = dict[str, tuple[tuple[int, ...], torch.dtype]]
BYTE = torch.uint8


@dataclass(frozen=True)
class NamedFormat:
    """How a matrix [O, I] becomes tensors and comes back in fp32, and which tensors these are."""

    encode: Callable[[torch.Tensor], Tensors]
    decode: Callable[[Tensors, tuple[int, int]], torch.Tensor]
    layout: Callable[[int, int], Layout]


def _gguf(name: str) -> NamedFormat:
    codec, form = CODECS[name], BLOCK_FORMATS[name]

    def layout(O: int, I: int) -> Layout:
        return {"blocks": ((O, I // form.weights * form.block_bytes), BYTE)}

    return NamedFormat(
        lambda w: {"blocks": codec.encode(w)}, lambda t, _: codec.decode(t["blocks"]), layout
    )


def _mx(name: str) -> NamedFormat:
    kind = ELEMENTS[name]

    def encode(w: torch.Tensor) -> Tensors:
        stored = encode_mx(w, name)
        return {"codes": stored.codes, "exponents": stored.exponents}

    def layout(O: int, I: int) -> Layout:
        codes = int(packed_bytes(I, kind.bits))
        return {"codes": ((O, codes), BYTE), "exponents": ((O, I // MX_BLOCK), BYTE)}

    return NamedFormat(
        encode, lambda t, _: Microscaled(kind, t["codes"], t["exponents"]).decode(), layout
    )


def _nvfp4() -> NamedFormat:
    def encode(w: torch.Tensor) -> Tensors:
        stored = encode_nvfp4(w)
        return {"codes": stored.codes, "scales": stored.scales, "tensor_scale": stored.tensor_scale}

    def layout(O: int, I: int) -> Layout:
        codes, scales = ((O, I // 2), BYTE), ((O, I // NVFP4_BLOCK), BYTE)
        return {"codes": codes, "scales": scales, "tensor_scale": ((), torch.float32)}

    return NamedFormat(
        encode, lambda t, _: NVFP4(t["codes"], t["scales"], t["tensor_scale"]).decode(), layout
    )


def _nf4(double: bool) -> NamedFormat:
    beside = ("outer_maxima", "mean") if double else ()

    def encode(w: torch.Tensor) -> Tensors:
        stored = encode_nf4(w, double)
        return {name: getattr(stored, name) for name in ("codes", "maxima", *beside)}

    def layout(O: int, I: int) -> Layout:
        blocks = -(-O * I // NF4_BLOCK)
        maxima = BYTE if double else torch.float32
        found: Layout = {"codes": ((-(-O * I // 2),), BYTE), "maxima": ((blocks,), maxima)}
        if double:
            found["outer_maxima"] = ((-(-blocks // OUTER_BLOCK),), torch.float32)
            found["mean"] = ((), torch.float32)
        return found

    return NamedFormat(encode, lambda t, shape: NormalFloat(shape, **t).decode(), layout)


def _e4m3() -> NamedFormat:
    """A scale a tensor, so that its largest number becomes the largest e4m3; of zeros it is 1."""

    def encode(w: torch.Tensor) -> Tensors:
        wide = check_numbers(w, 2)
        scale = wide.abs().amax() / E4M3.largest
        scale = torch.where(scale == 0, 1.0, scale)
        codes = E4M3.encode(wide / scale, saturate=True)
        return {"codes": codes.to(BYTE), "scale": scale}

    def decode(t: Tensors, _: tuple[int, int]) -> torch.Tensor:
        return (E4M3.decode(t["codes"]) * t["scale"]).float()

    def layout(O: int, I: int) -> Layout:
        return {"codes": ((O, I), BYTE), "scale": ((), torch.float32)}

    return NamedFormat(encode, decode, layout)


NAMED = {
    "q8_0": _gguf("q8_0"),
    "mxfp8": _mx("mxfp8"),
    "e4m3": _e4m3(),
    "q6_k": _gguf("q6_k"),
    "q5_0": _gguf("q5_0"),
    "q4_k": _gguf("q4_k"),
    "q4_0": _gguf("q4_0"),
    "nvfp4": _nvfp4(),
    "mxfp4": _mx("mxfp4"),
    "nf4": _nf4(double=False),
    "nf4-double": _nf4(double=True),
}


@dataclass(frozen=True)
class Named:
    """A matrix [O, I] in a named format. ValueError for an unknown name, and for tensors that are
    not those of the format and shape."""

    format: str
    shape: tuple[int, int]
    tensors: Tensors

    def __post_init__(self) -> None:
        expected = layout_of(self.format, *self.shape)
        found = {name: (tuple(t.shape), t.dtype) for name, t in self.tensors.items()}
        if found != expected:
            raise ValueError(
                f"a matrix {list(self.shape)} in {self.format} is {expected}; got {found}."
            )

    @property
    def nbytes(self) -> int:
        """Bytes of codes and of all that scales them."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def decode(self) -> torch.Tensor:
        """The numbers that the codes stand for, fp32 [O, I]."""
        return NAMED[self.format].decode(self.tensors, self.shape)


def encode_named(w: torch.Tensor, name: str) -> Named:
    """Round a matrix [O, I] to nearest. Raises ValueError for an unknown name, for NaN or infinity,
    and for rows that the format's blocks do not divide."""
    layout_of(name, 1, 1)
    wide = check_numbers(w, 2)
    return Named(name, (wide.shape[0], wide.shape[1]), NAMED[name].encode(wide))


def integers_of(stored: Named) -> Integers:
    """The same numbers as integers in groups of 32, whose codes loops can read: q8_0 and q4_0,
    where w = scale·level without a zero point. ValueError for a format that is none such."""
    places = {"q8_0": 8, "q4_0": 4}
    if stored.format not in places:
        raise ValueError(
            f"{stored.format} has no loop; of formats with a name, q8_0 and q4_0 have."
        )
    bits, form = places[stored.format], BLOCK_FORMATS[stored.format]
    blocks = stored.tensors["blocks"].view(stored.shape[0], -1, form.block_bytes)
    scales = blocks[..., :2].contiguous().view(torch.float16)[..., 0]  # [O, blocks]
    codes = blocks[..., 2:] ^ 128  # int8 from −128 as codes from 0
    if bits == 4:
        codes = torch.cat([blocks[..., 2:] & 15, blocks[..., 2:] >> 4], -1)  # [O, blocks, 32]
    how = IntegerFormat(bits, form.weights, scale_dtype=torch.float16)
    return from_codes(codes.flatten(1), how, scales, None)


def layout_of(name: str, outputs: int, inputs: int) -> Layout:
    """The tensors of a matrix [outputs, inputs] in a format: shapes and dtypes. ValueError for an
    unknown name, or sizes that are no whole numbers."""
    if name not in NAMED:
        raise ValueError(f"a named format is one of {', '.join(NAMED)}; got {name!r}.")
    return NAMED[name].layout(whole("outputs", outputs, 1), whole("inputs", inputs, 1))


def named_format_of(name: str, inputs: int) -> str | None:
    """The format that rows of so many inputs get where `name` is asked for; None if they stay as
    they are: see `theory.quantization.format_of_rows`. ValueError for an unknown name."""
    layout_of(name, 1, 1)
    return format_of_rows(name, inputs) if name in BLOCK_FORMATS else name
