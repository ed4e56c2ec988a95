"""The peak of live tensors, against counts by hand and against the formula of theory."""

import pytest
import torch

from twophase.measure.peak import PeakBytes
from twophase.models.transformer import Config, Transformer
from twophase.theory.kv_cache import activation_bytes


def test_two_results_alive_at_once_count_twice_and_freed_ones_do_not() -> None:
    x = torch.ones(1000)  # 4,000 bytes, given
    with PeakBytes() as p:
        a = x + 1
        b = a + 1
        assert p.live_bytes == 8000
        del a
        c = b * 2
        del b, c
    assert (p.peak_bytes, p.live_bytes) == (8000, 0)


def test_what_was_given_views_and_work_in_place_cost_nothing() -> None:
    x = torch.ones(10, 100)
    with PeakBytes() as p:
        x.add_(1)
        y = x.view(1000)[::2]
        y.mul_(2)
    assert p.peak_bytes == 0


def test_a_storage_counts_once_however_many_tensors_look_at_it() -> None:
    with PeakBytes() as p:
        x = torch.ones(1000)
        views = [x[i:] for i in range(10)]
        assert len(views) == 10
    assert p.peak_bytes == 4000


def test_a_model_on_the_meta_device_holds_what_it_holds_on_the_cpu() -> None:
    config = Config(L=3, D=64, F=192, N=4, K=2, H=24)
    peaks = []
    for device in ("cpu", "meta"):
        with torch.device(device):
            model = Transformer(config).to(torch.bfloat16)
            tokens = torch.zeros(2, 50, dtype=torch.long)
            for T in (50, 1):
                cache = model.new_cache(2, 100)
                with torch.inference_mode(), PeakBytes() as p:
                    model(tokens[:, :T], cache)
                peaks.append(p.peak_bytes)
    assert peaks[:2] == peaks[2:]
    assert peaks[0] > 2 * 50 * 192 * 2 * 2  # gate and up of one layer, in bf16, live together


def test_layers_take_turns_in_the_same_memory() -> None:
    peaks = []
    for L in (2, 6):
        with torch.device("meta"):
            model = Transformer(Config(L=L, D=64, F=192, N=4, K=2, H=24))
            with torch.inference_mode(), PeakBytes() as p:
                model(torch.zeros(1, 40, dtype=torch.long))
        peaks.append(p.peak_bytes)
    assert peaks[0] == peaks[1]


WIDE_MLP = Config(L=2, D=64, F=320, N=4, K=2, H=16, V=100)
LARGE_VOCABULARY = Config(L=2, D=64, F=192, N=4, K=4, H=24, V=5000)  # N·H is not D


@pytest.mark.parametrize("config", [WIDE_MLP, LARGE_VOCABULARY])
@pytest.mark.parametrize(("B", "T"), [(1, 40), (3, 1), (2, 17)])
def test_the_peak_of_a_pass_is_the_formula_and_the_tables_that_layers_share(
    config: Config, B: int, T: int
) -> None:
    c = config
    with torch.device("meta"):
        model = Transformer(c).to(torch.bfloat16)
        tokens = torch.zeros(B, T, dtype=torch.long)
        caches = [model.new_cache(B, 100) for _ in range(2)]
    for cache, at, n_logits in zip(caches, (None, -1), (T, 1), strict=True):
        with torch.inference_mode(), PeakBytes() as p:
            model(tokens, cache, at=at)
        formula = activation_bytes(B, T, c.D, c.F, c.V, n_logits=n_logits)
        in_a_layer = 2 * B * T * (4 * c.D + 3 * c.F)
        shared = T * (4 * c.H + 8)  # cosines and sines [T, H/2] in fp32, and positions
        if formula > in_a_layer + shared:
            # The tables are gone, the positions wait for the commit; rows may have been picked.
            shared = 8 * T + (0 if at is None or T == 1 else 2 * B * c.D)
        assert p.peak_bytes == formula + shared, at
