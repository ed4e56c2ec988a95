"""The costs of torch's own operators. Importing this module registers them; the conventions are in
`formulas`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from .formulas import FlopRule, aten, numel, per_input, per_output, register, tensors
from .traffic import Access, Part

SOFTMAX_FLOPS = 5
ADAMW_FLOPS = 14


def _times_input(factor: int) -> FlopRule:
    return lambda out, x, *args, **kwargs: factor * numel(x)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


# Products of matrices: every element of the result is a dot product of length a.shape[-1].
def _product(out: torch.Tensor, a: torch.Tensor, *args: Any, **kwargs: Any) -> int:
    return 2 * out.numel() * a.shape[-1]


def _added_product(
    out: torch.Tensor, c: torch.Tensor, a: torch.Tensor, *args: Any, **kwargs: Any
) -> int:
    return 2 * out.numel() * a.shape[-1]


def _convolution(
    out: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, *args: Any, **kwargs: Any
) -> int:
    return 2 * out.numel() * math.prod(weight.shape[1:])


register(
    "aten.mm", "aten.bmm", "aten.mv", "aten.dot", "aten.vdot", "aten._int_mm", matmul_flops=_product
)
register(
    "aten._scaled_mm",
    "aten._weight_int8pack_mm",
    "aten._weight_int4pack_mm_for_cpu",
    matmul_flops=_product,
)
register(
    "aten.addmm", "aten.baddbmm", "aten.addmv", matmul_flops=_added_product, other_flops=per_output
)
register(
    "aten.convolution", "aten._convolution", "aten.mkldnn_convolution", matmul_flops=_convolution
)


# Attention in one kernel: scores and their softmax never reach memory. The log-sum-exp it also
# returns serves training and is left out of the bytes.
def _scores(q: torch.Tensor, k: torch.Tensor) -> int:
    return math.prod(q.shape[:-1]) * k.shape[-2]


def _attention(
    out: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *args: Any, **kwargs: Any
) -> int:
    return 2 * _scores(q, k) * (q.shape[-1] + v.shape[-1])


def _attention_other(out: Any, q: torch.Tensor, k: torch.Tensor, *args: Any, **kwargs: Any) -> int:
    return (SOFTMAX_FLOPS + 1) * _scores(q, k)  # the scale is one more multiplication per score


def _attention_reads(out: Any, *args: Any, **kwargs: Any) -> list[Access]:
    return [*tensors(args), *tensors(kwargs)]


def _attention_backward(
    out: Any,
    grad: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *args: Any,
    **kwargs: Any,
) -> int:
    """Five products: scores again, and the gradients of the probabilities, q, k and v."""
    return 2 * _scores(q, k) * (3 * q.shape[-1] + 2 * v.shape[-1])


def _attention_backward_other(
    out: Any, grad: torch.Tensor, q: torch.Tensor, k: torch.Tensor, *args: Any, **kwargs: Any
) -> int:
    return 8 * _scores(q, k)


for _kind in (
    "flash_attention_for_cpu",
    "flash_attention",
    "efficient_attention",
    "cudnn_attention",
):
    _name = f"aten._scaled_dot_product_{_kind}"
    register(
        _name,
        matmul_flops=_attention,
        other_flops=_attention_other,
        reads=_attention_reads,
        writes=lambda out, *args, **kwargs: [out[0]],
    )
    register(
        f"{_name}_backward", matmul_flops=_attention_backward, other_flops=_attention_backward_other
    )

# Softmax, norms, losses, searches, scans, the optimizer.
register(
    "aten._softmax",
    "aten._log_softmax",
    "aten._safe_softmax",
    other_flops=_times_input(SOFTMAX_FLOPS),
)
register(
    "aten._softmax_backward_data", "aten._log_softmax_backward_data", other_flops=_times_input(4)
)
register(
    "aten.native_layer_norm",
    other_flops=_times_input(7),
    writes=lambda out, *args, **kwargs: [out[0]],
)
# Backward of a norm: twice the forward, as for a matrix product.
register(
    "aten.native_layer_norm_backward",
    other_flops=lambda out, grad, *args, **kwargs: 2 * 7 * numel(grad),
)
register(
    "aten._fused_rms_norm_backward",
    other_flops=lambda out, grad, *args, **kwargs: 2 * 4 * numel(grad),
)
register(
    "aten._fused_rms_norm",
    other_flops=_times_input(4),
    writes=lambda out, *args, **kwargs: [out[0]],
)
register(
    *aten("topk sort argsort kthvalue multinomial cumsum cumprod cummax logcumsumexp"),
    *aten("searchsorted bincount histc unique_dim _unique2 equal isin"),
    *aten("sum mean prod max min amax amin argmax argmin any all var std median mode"),
    other_flops=per_input,
)
register("aten._fused_adamw", "aten._fused_adam", other_flops=_times_input(ADAMW_FLOPS))

# Moving and making data: no FLOPs.
register(
    *aten("clone copy _to_copy cat stack flip roll repeat tril triu constant_pad_nd fill zero"),
    *aten("zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full"),
    *aten("scalar_tensor arange linspace eye repeat_interleave tril_indices triu_indices"),
    *aten("rand randn randint randperm rand_like randn_like randint_like"),
    *aten("uniform normal exponential random bernoulli masked_select nonzero"),
    *aten(
        "slice_scatter select_scatter slice_backward select_backward _local_scalar_dense"
        " _pin_memory one_hot"
    ),
)


# Lookups touch the rows they look up, not the table.
def _rows_read(out: torch.Tensor, table: torch.Tensor, *args: Any, **kwargs: Any) -> list[Access]:
    return [Part(table, _bytes(out)), *tensors(args), *tensors(kwargs)]


register(
    "aten.embedding",
    "aten.index",
    "aten.index_select",
    "aten.gather",
    "aten.take",
    reads=_rows_read,
)


def _indexed(target: torch.Tensor, indices: Any) -> int:
    """Elements of `target[indices]`."""
    counts = [
        i if i is None or i.dtype not in (torch.bool, torch.uint8) else i.nonzero().unbind(1)
        for i in indices
    ]
    flat: list[torch.Tensor | None] = []
    for i in counts:
        flat.extend(i if isinstance(i, tuple) else [i])
    broadcast: torch.Size = torch.broadcast_shapes(*(i.shape for i in flat if i is not None))  # type: ignore[no-untyped-call]
    kept = [n for d, n in enumerate(target.shape) if d >= len(flat) or flat[d] is None]
    return int(math.prod(broadcast) * math.prod(kept))


def _same_storage(out: torch.Tensor, target: torch.Tensor) -> bool:
    return bool(out.untyped_storage()._cdata == target.untyped_storage()._cdata)


def _write_into(out: torch.Tensor, target: torch.Tensor, count: int) -> list[Access]:
    """In place, `count` elements of the target; otherwise the whole new copy."""
    return [Part(target, count * target.element_size()) if _same_storage(out, target) else out]


def _keep_rest(out: torch.Tensor, target: torch.Tensor) -> list[Access]:
    """Out of place, the target is read to be copied."""
    return [] if _same_storage(out, target) else [target]


def _put_writes(
    out: torch.Tensor, target: torch.Tensor, indices: Any, *args: Any, **kwargs: Any
) -> list[Access]:
    return _write_into(out, target, _indexed(target, indices))


def _put_reads(
    out: torch.Tensor,
    target: torch.Tensor,
    indices: Any,
    values: torch.Tensor,
    accumulate: bool = False,
    **kwargs: Any,
) -> list[Access]:
    count = _indexed(target, indices) if accumulate else 0
    added: list[Access] = [Part(target, count * target.element_size())] if count else []
    return [*tensors(indices), values, *added, *_keep_rest(out, target)]


def _put_flops(
    out: Any, target: Any, indices: Any, values: Any, accumulate: bool = False, **kwargs: Any
) -> int:
    return _indexed(target, indices) if accumulate else 0


register(
    "aten.index_put",
    "aten._index_put_impl",
    other_flops=_put_flops,
    reads=_put_reads,
    writes=_put_writes,
)


def _register_row_writes(
    name: str, written: Callable[[torch.Tensor, object], int], adds: bool
) -> None:
    """scatter and index_copy: `written(index, source)` elements change; with `adds` they are read
    first."""

    def reads(
        out: Any, target: torch.Tensor, dim: int, index: torch.Tensor, source: Any, **kwargs: Any
    ) -> list[Access]:
        count = written(index, source)
        moved: list[Access] = [Part(t, count * t.element_size()) for t in tensors(source)]
        added: list[Access] = [Part(target, count * target.element_size())] if adds else []
        return [index, *moved, *added, *_keep_rest(out, target)]

    def writes(
        out: Any, target: torch.Tensor, dim: int, index: torch.Tensor, source: Any, **kwargs: Any
    ) -> list[Access]:
        return _write_into(out, target, written(index, source))

    def flops(
        out: Any, target: Any, dim: int, index: torch.Tensor, source: Any, **kwargs: Any
    ) -> int:
        return written(index, source) if adds else 0

    register(name, other_flops=flops, reads=reads, writes=writes)


for _kind, _adds in (("scatter", False), ("scatter_add", True)):
    _register_row_writes(f"aten.{_kind}", lambda index, source: index.numel(), _adds)
for _kind, _adds in (("index_copy", False), ("index_add", True)):
    _register_row_writes(f"aten.{_kind}", lambda index, source: numel(source), _adds)

register("aten.embedding_dense_backward", other_flops=per_input)
register(
    "aten.nll_loss_forward",
    other_flops=lambda out, x, target, *args, **kwargs: int(target.numel()),
    reads=lambda out, x, target, *args, **kwargs: [
        Part(x, target.numel() * x.element_size()),
        target,
    ],
    writes=lambda out, *args, **kwargs: [out[0]],
)
register(
    "aten.nll_loss_backward",
    other_flops=lambda out, grad, x, target, *args, **kwargs: int(target.numel()),
    reads=lambda out, grad, x, target, *args, **kwargs: [grad, target],
)
