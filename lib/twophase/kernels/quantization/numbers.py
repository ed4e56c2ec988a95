"""What may be encoded at all."""

import torch


def check_numbers(x: torch.Tensor, least_dims: int = 1) -> torch.Tensor:
    """x in fp32, contiguous. Raises ValueError for what is not a tensor of finite floats, or is
    empty: a single NaN or infinity would spoil the scale of all its neighbors."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point():
        found = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise ValueError(f"only floating-point tensors are quantized; got {found}.")
    if x.ndim < least_dims or not x.numel():
        raise ValueError(
            f"a tensor of at least {least_dims} dimensions with some numbers is needed; got"
            f" {list(x.shape)}."
        )
    wide = x.detach().float().contiguous()
    if not wide.isfinite().all():
        bad = int((~wide.isfinite()).sum())
        raise ValueError(
            f"{bad} of {x.numel()} numbers are NaN or infinite in fp32: no scale fits them; find"
            " out where they come from first."
        )
    return wide


def check_hessian(hessian: torch.Tensor, inputs: int) -> None:
    """ValueError unless this may be XᵀX of so many inputs: floats [I, I], all of them finite."""
    if not isinstance(hessian, torch.Tensor) or hessian.shape != (inputs, inputs):
        got = list(getattr(hessian, "shape", [type(hessian).__name__]))
        raise ValueError(f"{inputs} inputs have a hessian [{inputs}, {inputs}]; got {got}.")
    check_numbers(hessian)


def check_bytes(packed: torch.Tensor, row_bytes: int, what: str) -> None:
    """ValueError unless these are uint8 whose rows are whole numbers of blocks of `row_bytes`."""
    if packed.dtype != torch.uint8 or packed.ndim < 1 or packed.shape[-1] % row_bytes:
        raise ValueError(
            f"{what} comes as uint8 in rows of whole blocks of {row_bytes} bytes; got"
            f" {packed.dtype} {list(packed.shape)}."
        )


def blocks_of(x: torch.Tensor, size: int, what: str) -> torch.Tensor:
    """Rows cut into blocks, fp32 [..., blocks, size]. ValueError for numbers that cannot be
    quantized, and for a width that is no whole number of blocks."""
    wide = check_numbers(x)
    if wide.shape[-1] % size:
        raise ValueError(
            f"{what} needs rows of a multiple of {size} numbers; got rows of {wide.shape[-1]}: pad"
            " them, or take a format with groups."
        )
    return wide.view(*wide.shape[:-1], -1, size)  # [..., blocks, size]
