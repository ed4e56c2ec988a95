"""How weights lie in a checkpoint's file: in bf16, or, where a model is large, each matrix as 8-bit
integers with one scale a row (`<name>` and `<name>.scales`), which are decoded into bf16."""

import copy

import torch

from twophase.kernels.quantization.integers import IntegerFormat, Integers, encode
from twophase.models.transformer import Transformer

INT8 = IntegerFormat(bits=8, group="channel", scale_dtype=torch.float32)
SCALES = ".scales"
HEAD, EMBEDDING = "lm_head.weight", "embed_tokens.weight"  # the same one in a tied model


def to_file(model: Transformer, int8: bool = False) -> dict[str, torch.Tensor]:
    """What is written of a model: bf16, or matrices [O, I] as uint8 codes [O, I] and fp32 scales
    [O, 1], where `int8` says so; a tied output matrix once. ValueError for weights that are not
    finite as they are written, and for int8 of another model than one of attention and MLPs."""
    if int8 and (model.config.ssm or model.config.moe or model.config.linear):
        raise ValueError(
            "8-bit integers are for the matrices of attention and MLPs; this model has others:"
            " write it in bf16."
        )
    state: dict[str, torch.Tensor] = {}
    for key, value in model.state_dict().items():
        value = value.detach().to("cpu")
        if key == HEAD and model.config.tied:
            continue
        narrow = value.to(torch.bfloat16).contiguous()
        if not narrow.isfinite().all():
            raise ValueError(f"{key} has numbers that are not finite in bf16: nothing is written.")
        if int8 and value.ndim == 2:
            stored = encode(value, INT8)
            state[key], state[key + SCALES] = stored.codes, stored.scales
        else:
            state[key] = narrow
    return state


def from_file(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The weights in bf16 that a file stands for. ValueError for codes without scales, and for
    those that do not fit each other."""
    weights = {}
    for key, value in state.items():
        if key.endswith(SCALES) and key.removesuffix(SCALES) in state:
            continue
        if (scales := state.get(key + SCALES)) is not None:
            value = decoded(value, scales)
        elif not value.is_floating_point():
            raise ValueError(f"{key} holds integers without scales")
        weights[key] = value
    return weights


def decoded(codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """bf16 [O, I] of uint8 codes [O, I] and scales fp32 [O, 1], of all rows or of some. ValueError
    where they are not such."""
    if codes.dtype != torch.uint8 or codes.ndim != 2:
        raise ValueError(
            f"codes are uint8 [outputs, inputs]; got {codes.dtype} {list(codes.shape)}"
        )
    found = Integers(INT8, codes.shape[1], codes, scales).decode().to(torch.bfloat16)
    if not found.isfinite().all():
        raise ValueError("scales stand for numbers that are not finite in bf16")
    return found


def as_saved(model: Transformer, int8: bool = False) -> Transformer:
    """A copy, in fp32 and ready to run, with the numbers that its file will hold. ValueError as
    `to_file`."""
    saved = copy.deepcopy(model).float().eval()
    weights = from_file(to_file(model, int8))
    if model.config.tied:
        weights[HEAD] = weights[EMBEDDING]
    saved.load_state_dict(weights)
    return saved
