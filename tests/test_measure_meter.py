"""The meter counts what the closed forms say, to the last FLOP and byte."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from draws import draws
from hypothesis import given
from hypothesis import strategies as st

from twophase.measure import Count, Meter, UnknownOperator, counted, record, register, tensor_bytes
from twophase.theory import arithmetic_intensity as theory

SIZE = st.integers(1, 13)
DTYPE = st.sampled_from([torch.float32, torch.bfloat16])
GRADIENTS = st.sampled_from([torch.no_grad, torch.inference_mode])
FAST = draws(25)


def values(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(*shape, dtype=dtype)


@FAST
@given(B=SIZE, D=SIZE, F_=SIZE, dtype=DTYPE, gradients=GRADIENTS, linear=st.booleans())
def test_a_matmul_costs_exactly_what_the_theory_says(B, D, F_, dtype, gradients, linear):
    x, w = values(B, D, dtype=dtype), values(D, F_, dtype=dtype)
    with gradients(), Meter() as m:
        F.linear(x, w.t()) if linear else x @ w
    assert m.flops == m.matmul_flops == theory.matmul_flops(B, D, F_)
    assert m.bytes == theory.matmul_bytes(B, D, F_, dtype.itemsize, dtype.itemsize)
    assert m.matmul_intensity == theory.matmul_intensity(B, D, F_, dtype.itemsize, dtype.itemsize)


@FAST
@given(B=SIZE, T=SIZE, D=SIZE, F_=SIZE, dtype=DTYPE, gradients=GRADIENTS)
def test_an_mlp_costs_exactly_what_the_theory_says_unfused_and_fused(B, T, D, F_, dtype, gradients):
    x, up, gate = (
        values(B, T, D, dtype=dtype),
        values(D, F_, dtype=dtype),
        values(D, F_, dtype=dtype),
    )
    down, size = values(F_, D, dtype=dtype), dtype.itemsize
    with gradients(), Meter() as plain:
        (F.silu(x @ gate) * (x @ up)) @ down
    with gradients(), Meter() as whole, whole.fused("mlp"):
        y = (F.silu(x @ gate) * (x @ up)) @ down
    assert plain.matmul_flops == whole.matmul_flops == theory.mlp_flops(B, T, D, F_)
    assert plain.bytes == theory.mlp_bytes_unfused(
        B, T, D, F_, True, size, size, elementwise_passes=5
    )
    assert whole.bytes == theory.mlp_bytes(B, T, D, F_, True, size, size)
    assert whole.bytes_written == tensor_bytes(y)


@FAST
@given(
    B=SIZE,
    T=SIZE,
    past=SIZE,
    K=st.integers(1, 3),
    G=st.integers(1, 4),
    H=SIZE,
    dtype=DTYPE,
    gradients=GRADIENTS,
)
def test_a_cached_attention_step_costs_exactly_what_the_theory_says(
    B, T, past, K, G, H, dtype, gradients
):
    N, S, room = K * G, past + T, past + T + 5
    q, cache_k, cache_v = (
        values(B, h, t, H, dtype=dtype) for h, t in ((N, T), (K, room), (K, room))
    )
    k, v = cache_k[:, :, :S], cache_v[:, :, :S]
    with gradients(), Meter() as one_kernel:
        F.scaled_dot_product_attention(q, k, v, enable_gqa=True)
    with gradients(), Meter() as spelled_out, spelled_out.fused("attention"):
        keys, vals = (t.repeat_interleave(G, dim=1) for t in (k, v))
        ((q @ keys.transpose(-1, -2)) * H**-0.5).softmax(-1) @ vals
    for m in (one_kernel, spelled_out):
        assert m.matmul_flops == theory.attention_flops(B, T, S, N, H)
        assert m.bytes == theory.attention_bytes(B, T, S, N, K, H, dtype.itemsize, dtype.itemsize)
        assert m.other_flops == 6 * B * N * T * S  # the scale and five for the softmax


def test_attention_that_stores_its_scores_moves_what_the_theory_says():
    B, T, S, N, H = 2, 3, 7, 4, 5
    q, k, v = values(B, N, T, H), values(B, N, S, H), values(B, N, S, H)
    with Meter() as m:
        (q @ k.transpose(-1, -2)).softmax(-1) @ v
    assert m.bytes == theory.attention_bytes_materialized(B, T, S, N, N, H, 4, 4)


def test_einsum_and_a_batched_product_count_the_same():
    a, b = values(3, 4, 5), values(3, 5, 6)
    with Meter() as product:
        a @ b
    with Meter() as einsum:
        torch.einsum("bij,bjk->bik", a, b)
    assert product.flops == einsum.flops == 2 * 3 * 4 * 5 * 6
    assert product.bytes == einsum.bytes


def test_bias_is_other_flops_and_is_read_once():
    x, w, b = values(3, 4), values(5, 4), values(5)
    with Meter() as m:
        F.linear(x, w, b)
    assert (m.matmul_flops, m.other_flops) == (2 * 3 * 4 * 5, 3 * 5)
    assert (m.bytes_read, m.bytes_written) == (4 * (12 + 20 + 5), 4 * 15)


def test_training_a_matrix_takes_six_flops_per_parameter_and_token():
    x, w = values(7, 11).requires_grad_(), values(11, 5).requires_grad_()
    with Meter() as m:
        (x @ w).sum().backward()
    assert m.matmul_flops == 6 * 7 * w.numel()


def test_a_training_step_with_attention_loss_and_adamw_has_no_unknown_operator():
    layer = torch.nn.Linear(8, 24)
    optimizer = torch.optim.AdamW(layer.parameters())
    with Meter() as m:
        q, k, v = layer(values(2, 1, 3, 8)).split(8, dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        F.cross_entropy(F.rms_norm(y, (8,)).view(6, 8), torch.zeros(6, dtype=torch.long)).backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    forward, backward = 2 * 6 * 8 * 24, 2 * 6 * 8 * 24  # the input needs no gradient
    assert m.matmul_flops == forward + backward + (4 + 10) * 2 * 3 * 3 * 8


def test_views_cost_nothing():
    x = values(4, 6, 8)
    with torch.inference_mode(), Meter() as m:
        x.view(24, 8).t()[2:5].unsqueeze(0).expand(9, 3, 24).transpose(0, 1)
        x.permute(2, 0, 1).unfold(0, 2, 1).detach().chunk(2)
        torch.empty(1000)
        x.reshape(-1)
    assert (m.flops, m.bytes) == (0, 0)


def test_a_reshape_that_must_copy_is_counted():
    x = values(4, 6)
    with torch.inference_mode(), Meter() as m:
        x.t().reshape(-1)
    assert (m.bytes_read, m.bytes_written, m.flops) == (96, 96, 0)


def test_a_slice_write_costs_the_slice_read_and_written_once():
    cache, new = torch.zeros(2, 3, 100, 5), values(2, 3, 1, 5)
    with Meter() as assigned:
        cache[:, :, 7:8] = new
    with Meter() as copied:
        cache[:, :, 7:8].copy_(new)
    with Meter() as indexed:
        cache.index_copy_(2, torch.tensor([7]), new)
    for m in (assigned, copied):
        assert (m.bytes_read, m.bytes_written) == (2 * 3 * 5 * 4, 2 * 3 * 5 * 4)
    assert (indexed.bytes_read, indexed.bytes_written) == (2 * 3 * 5 * 4 + 8, 2 * 3 * 5 * 4)


def test_lookups_touch_rows_not_tables():
    table, ids = values(1000, 8, dtype=torch.bfloat16), torch.tensor([3, 3, 999])
    with Meter() as m:
        F.embedding(ids, table)
    assert (m.bytes_read, m.bytes_written) == (3 * 8 * 2 + 3 * 8, 3 * 8 * 2)
    with Meter() as m:
        table[ids]
    assert (m.bytes_read, m.bytes_written) == (3 * 8 * 2 + 3 * 8, 3 * 8 * 2)


SOURCE = values(1, 5, 4)


@pytest.mark.parametrize(
    ("write", "elements"),
    [
        (
            lambda x: x.index_put_((torch.tensor([0, 2]), torch.tensor([1, 1])), SOURCE[0, :2]),
            2 * 4,
        ),
        (lambda x: x.index_put_((torch.tensor([True, False, True]),), SOURCE[0]), 2 * 5 * 4),
        (lambda x: x.scatter_(0, torch.zeros(1, 5, 4, dtype=torch.long), SOURCE), 5 * 4),
        (lambda x: x.index_add_(0, torch.tensor([2]), SOURCE), 5 * 4),
        (lambda x: x.fill_(1.0), 3 * 5 * 4),
    ],
)
def test_writes_at_indices_cost_what_they_touch(write, elements):
    x = torch.zeros(3, 5, 4)
    with Meter() as m:
        write(x)
    written = sum(c.bytes_written for name, c in m.by_op.items() if name.endswith("_"))
    assert written == elements * 4


def test_a_broadcast_operand_counts_its_storage_not_its_shape():
    row, x = values(1, 8), values(100, 8)
    with Meter() as m:
        row.expand(100, 8) + x
    assert m.bytes_read == 4 * (8 + 800)


def test_operands_given_twice_are_read_once_and_casts_count_both_widths():
    x = values(10)
    with Meter() as m:
        x * x
        x.to(torch.bfloat16)
    assert (m.bytes_read, m.bytes_written, m.other_flops) == (40 + 40, 40 + 20, 10)


@FAST
@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_bytes_of_any_strided_view_are_its_distinct_elements(shape, data):
    strides = [data.draw(st.integers(0, 7)) for _ in shape]
    offset = data.draw(st.integers(0, 3))
    size = offset + 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    view = torch.arange(size, dtype=torch.float64).as_strided(shape, strides, offset)
    assert tensor_bytes(view) == 8 * len(set(view.flatten().tolist()))


def test_an_unknown_compute_operator_is_named_and_can_be_registered():
    x = values(3, 3)
    with pytest.raises(UnknownOperator, match=r"aten\.linalg_lu.* costs"), Meter():
        torch.linalg.lu(x)
    register(
        "aten.linalg_lu", other_flops=lambda out, x, *args, **kwargs: 2 * x.shape[-1] ** 3 // 3
    )
    with Meter() as m:
        torch.linalg.lu(x)
    assert m.other_flops == 18


def test_register_refuses_a_name_that_is_no_operator():
    with pytest.raises(ValueError, match=r"namespace\.operator"):
        register("mm", matmul_flops=lambda out, *args: 1)


def test_numpy_kernels_report_themselves_to_every_open_meter_and_to_none():
    def matvec(a: np.ndarray, x: np.ndarray) -> np.ndarray:
        record("matvec", flops=2 * a.size, bytes_read=a.nbytes + x.nbytes, bytes_written=8 * len(a))
        return a @ x

    matvec(np.ones((2, 2)), np.ones(2))
    with Meter() as outer:
        with Meter() as inner:
            matvec(np.ones((3, 5)), np.ones(5))
        matvec(np.ones((3, 5)), np.ones(5))
    assert (inner.matmul_flops, inner.bytes) == (30, 8 * (15 + 5 + 3))
    assert (outer.calls, outer.flops, outer.by_op["matvec"].bytes) == (2, 60, 2 * 8 * 23)


def test_a_decorated_kernel_is_counted_and_negative_counts_are_refused():
    @counted("axpy", lambda a, x: Count(0, 0, 2 * x.size, x.nbytes, x.nbytes))
    def axpy(a: float, x: np.ndarray) -> np.ndarray:
        return a * x + x

    with Meter() as m:
        axpy(2.0, np.ones(4))
    assert (m.calls, m.other_flops, m.matmul_flops, m.bytes) == (1, 8, 0, 64)
    with pytest.raises(ValueError, match="negative"):
        record("x", flops=-1)


def test_a_fused_region_counts_a_cache_written_and_read_in_it_once_each():
    cache, new = torch.zeros(4, 10), values(1, 10)
    with Meter() as m, m.fused("step"):
        cache[2:3] = new
        first = cache[:2].sum()
        (cache[:3].sum() + first).sqrt()
    assert m.bytes_read == 4 * (10 + 30)  # rows 0 and 1 are read twice, counted once
    assert m.bytes_written == 4 * (10 + 1)


def test_what_a_fused_region_hid_is_counted_when_it_is_read_later_or_declared():
    x = values(6)
    with Meter() as m:
        with m.fused("both"):
            y = x + 1
            z = y * 2
        assert m.bytes == 4 * (6 + 6)
        y.exp()
    assert m.by_region["both"].bytes == 4 * (6 + 6 + 6)
    assert m.bytes == 4 * (18 + 12)
    with Meter() as m, m.fused("both") as region:
        y = region.out(x + 1)
        z = y * 2  # noqa: F841
    assert m.bytes == 4 * 18


def test_regions_add_up_and_name_their_share():
    x = values(3, 3)
    with Meter() as m:
        for _ in range(2):
            with m.region("product"):
                x @ x
        x + x
    assert m.by_region["product"].matmul_flops == m.matmul_flops == 2 * 54
    assert m.by_region["product"].bytes == 2 * 4 * (9 + 9)
    assert m.bytes == sum(c.bytes for c in m.by_op.values()) == 2 * 72 + 72


def test_a_model_larger_than_memory_is_counted_on_the_meta_device():
    x, w = (
        torch.empty(*s, dtype=torch.bfloat16, device="meta")
        for s in ((8, 100_000), (100_000, 1_000_000))
    )
    with Meter() as m:
        x @ w
    assert m.flops == theory.matmul_flops(8, 100_000, 1_000_000)
    assert m.bytes == theory.matmul_bytes(8, 100_000, 1_000_000)


@pytest.mark.parametrize("wide", [24, 16])  # another width of values: no kernel of torch's takes it
@pytest.mark.parametrize("T", [40, 1])
def test_attention_moves_the_same_on_the_meta_device_as_on_the_cpu(T: int, wide: int) -> None:
    """Its stand-in there takes attention apart: a decode step of 1,024 tokens read 32 million
    numbers more than on the CPU."""
    found = []
    for device in ("cpu", "meta"):
        q = torch.zeros(2, 4, T, 24, dtype=torch.bfloat16, device=device)
        k = torch.zeros(2, 4, 40, 24, dtype=torch.bfloat16, device=device)
        v = torch.zeros(2, 4, 40, wide, dtype=torch.bfloat16, device=device)
        with torch.inference_mode(), Meter() as m:
            out = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
        found.append((out.shape, m.matmul_flops, m.bytes_read, m.bytes_written, sorted(m.by_op)))
    assert found[0] == found[1]


def test_the_table_ends_with_the_total():
    x, w = values(2, 3), values(3, 4)
    with Meter() as m:
        x @ w
    assert m.table().rows[-1][:3] == ["total", 1, 48]
    assert "aten.mm" in str(m)
    assert "<caption>" in m._repr_html_()


def test_our_numba_matvec_is_counted_and_left_as_it_was():
    from twophase.kernels import matvec as home

    w, x, compiled = values(6, 4), values(4), home._matvec_float32
    with Meter() as m:
        home.matvec(w, x)
    assert (m.matmul_flops, m.bytes_read, m.bytes_written) == (2 * 24, 4 * (24 + 4), 4 * 6)
    ints, scales = home.quantize_rows(w)
    with Meter() as m:
        home.matvec(ints, x, scales)
    assert (m.matmul_flops, m.other_flops, m.bytes_read, m.bytes_written) == (
        2 * 24,
        6,
        24 + 4 * (6 + 4),
        4 * 6,
    )
    assert home._matvec_float32 is compiled


@pytest.mark.parametrize(("T", "S"), [(1, 11), (3, 11), (11, 11)])
@pytest.mark.parametrize("kernel", ["causal_attention", "naive_attention"])
def test_our_attention_as_one_kernel_costs_exactly_what_the_theory_says(kernel, T, S):
    from twophase.kernels import attention

    B, N, K, H = 2, 6, 2, 8
    q, k, v = (values(B, t, h, H, dtype=torch.bfloat16) for t, h in ((T, N), (S, K), (S, K)))
    with torch.inference_mode(), Meter() as m, m.fused("attention"):
        getattr(attention, kernel)(q, k, v)
    assert m.matmul_flops == theory.attention_flops(B, T, S, N, H)
    assert m.bytes == theory.attention_bytes(B, T, S, N, K, H)


def test_a_decode_step_of_our_model_has_the_flops_that_its_parameter_count_says():
    from twophase.models.transformer import Config, Transformer
    from twophase.theory.count import matmul_params

    config = Config(L=3, D=48, F=80, N=4, K=2, H=16)
    model, tokens = Transformer(config).eval(), torch.zeros(2, 10, dtype=torch.long)
    with torch.inference_mode():
        cache = model.new_cache(2, 32)
        model(tokens, cache)
        with Meter() as step:
            model(tokens[:, :1], cache)
    attention = config.L * theory.attention_flops(2, 1, 11, config.N, config.H)
    assert step.matmul_flops == 2 * 2 * matmul_params(config.architecture()) + attention


def test_training_our_model_meets_no_unknown_operator():
    from twophase.models.transformer import Config, Transformer

    model, tokens = (
        Transformer(Config(L=2, D=32, F=48, N=2, K=1, H=16)),
        torch.zeros(2, 6, dtype=torch.long),
    )
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    with Meter() as forward:
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    with Meter() as backward:
        loss.backward()
        optimizer.step()
    assert 1.9 * forward.matmul_flops < backward.matmul_flops < 2.6 * forward.matmul_flops
