"""A step of `bench/card.py` takes torch's kernel of attention where its way says so, and only
there."""

import sys
from pathlib import Path

import pytest
import torch

import twophase.kernels.attention
from twophase import models
from twophase.measure.card_runs import TORCHS

BENCH = Path(__file__).parents[1] / "bench"


@pytest.mark.parametrize(("way", "chosen"), [("eager", True), ("eager" + TORCHS, False)])
def test_the_library_is_asked_for_a_kernel_unless_the_way_is_torchs(monkeypatch, way, chosen):
    monkeypatch.syspath_prepend(str(BENCH))
    import card_models

    asked = []

    def ours(q, k, v):
        asked.append(q.shape)
        return False

    monkeypatch.setattr(twophase.kernels.attention, "wants_split", ours)
    net = models.load("gqa")
    cache = net.new_cache(1, 5)
    cache.fill_with_noise(4)
    with torch.no_grad():
        call, facts = card_models._step(net, cache, way, counted=False)
        assert not asked
        call()
    assert bool(asked) is chosen
    assert facts == {"cache_bytes": cache.nbytes}
    assert twophase.kernels.attention.wants_split is ours
    for name in ("card_models", "card_timing"):
        sys.modules.pop(name)
