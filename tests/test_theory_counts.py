"""Parameter counts and caches of the catalog against what was published."""

import pytest

from twophase.theory import catalog, params
from twophase.theory.architecture import Architecture
from twophase.theory.sizes import MixtureOfExperts

# Counts of the published checkpoints, a tied head once.
PUBLISHED = {
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3-8b": 8_030_261_248,
    "llama-3-70b": 70_553_706_496,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": (
        671_026_419_200
    ),  # with the routers' correction biases, without the next-token-prediction module
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-1b": 999_885_952,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
}

# Millions, embedding and the rest: Gemma 2 report, table 2 (2024); Gemma 3 report, table 1 (2025).
GEMMA_MILLIONS = {
    "gemma-2-9b": (918, 8324),
    "gemma-2-27b": (1180, 26047),
    "gemma-3-1b": (302, 698),
    "gemma-3-4b": (675, 3209),
    "gemma-3-12b": (1012, 10759),
    "gemma-3-27b": (1416, 25600),
}

# Billions, all and active: papers and model cards.
ROUNDED_BILLIONS = {
    "worked-18b": (18.4, 18.4),
    "worked-moe": (212, 31.3),
    "mixtral-8x7b": (46.7, 12.9),
    "deepseek-v2": (236, 21),
    "deepseek-v3": (671, 37),
    "qwen3-30b-a3b": (30.5, 3.3),
    "qwen3-0.6b": (0.6, 0.6),
    "qwen3-1.7b": (1.7, 1.7),
    "qwen3-4b": (4.0, 4.0),
    "qwen3-14b": (14.8, 14.8),
    "qwen3-32b": (32.8, 32.8),
    "gpt-3": (175, 175),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_count_equals_the_published_checkpoint_to_the_parameter(name: str) -> None:
    assert catalog.model(name).n_params() == PUBLISHED[name]


@pytest.mark.parametrize("name", GEMMA_MILLIONS)
def test_gemma_split_agrees_with_the_reports_tables(name: str) -> None:
    parts = catalog.model(name).breakdown()
    embedding, rest = GEMMA_MILLIONS[name]
    assert parts["embedding"] / 1e6 == pytest.approx(embedding, rel=0.007)
    assert (sum(parts.values()) - parts["embedding"]) / 1e6 == pytest.approx(rest, rel=0.002)


@pytest.mark.parametrize(
    ("name", "mlp", "attention", "tables", "active"),
    [("gpt-oss-20b", 19.12, 0.64, 1.16, 3.61), ("gpt-oss-120b", 114.71, 0.96, 1.16, 5.13)],
)
def test_gpt_oss_splits_as_its_model_card_says(name, mlp, attention, tables, active) -> None:
    """The card's table 1 (2025), in billions: routers go with the MLP, and of the two tables only
    the head is active."""
    arch = catalog.model(name)
    parts = arch.breakdown()
    assert round((parts["mlp"] + parts["router"]) / 1e9, 2) == mlp
    assert round(parts["attention"] / 1e9, 2) == attention
    assert round((parts["embedding"] + parts["head"]) / 1e9, 2) == tables
    assert round((arch.n_active_params() - parts["embedding"]) / 1e9, 2) == active


@pytest.mark.parametrize("name", ROUNDED_BILLIONS)
def test_totals_and_active_parameters_agree_with_the_rounded_figures(name: str) -> None:
    arch = catalog.model(name)
    total, active = ROUNDED_BILLIONS[name]
    assert arch.n_params() / 1e9 == pytest.approx(total, rel=0.013)
    assert arch.n_active_params() / 1e9 == pytest.approx(active, rel=0.02)


@pytest.mark.parametrize("arch", catalog.MODELS.values(), ids=list(catalog.MODELS))
def test_every_part_is_counted_once(arch: Architecture) -> None:
    parts = arch.breakdown()
    assert set(parts) == {"embedding", "positions", "attention", "mlp", "router", "norms", "head"}
    assert all(size >= 0 for size in parts.values())
    assert (parts["head"] == 0) == arch.tied_embeddings
    assert sum(parts.values()) == arch.n_params() >= arch.n_active_params()


def test_formula_in_letters_is_the_count_without_norms() -> None:
    for name in ("worked-18b", "llama-2-7b", "llama-3-70b", "gemma-2-27b"):
        a = catalog.model(name)
        formula = params.transformer_params(
            a.L, a.D, a.F, a.N, a.K, a.H, a.V, tied=a.tied_embeddings
        )
        assert formula == a.n_params() - a.breakdown()["norms"]
    a = catalog.model("worked-moe")
    formula = params.moe_transformer_params(a.L, a.D, a.F, a.N, a.K, a.H, a.V, E=16, tied=True)
    assert formula == a.n_params() - a.breakdown()["norms"]


def test_heads_need_not_fill_the_width() -> None:
    arch = Architecture(
        "odd", L=1, D=10, F=7, N=3, K=1, H=5, V=11, qkv_bias=True, o_bias=True, qk_norm=True
    )
    assert arch.breakdown() == {
        "embedding": 110,
        "positions": 0,
        "attention": 10 * 15 + 15 * 10 + 2 * 10 * 5 + 15 + 5 + 5 + 10,
        "mlp": 3 * 70,
        "router": 0,
        "norms": 3 * 10 + 2 * 5,
        "head": 110,
    }
    assert arch.n_matmul_params() == 150 + 150 + 100 + 210 + 110


def test_layers_that_borrow_keys_and_values_weigh_less_and_cache_nothing() -> None:
    sizes = {"L": 4, "D": 8, "F": 8, "N": 4, "K": 2, "H": 3, "V": 5}
    own = Architecture("own", **sizes)
    shared = Architecture("shared", **sizes, kv_source=(0, 0, 2, 2))
    assert own.n_params() - shared.n_params() == 2 * (2 * 8 * 2 * 3)
    assert shared.cache_bytes(10) * 2 == own.cache_bytes(10)


def test_only_routed_experts_can_be_idle() -> None:
    v3 = catalog.model("deepseek-v3")
    assert v3.n_expert_params() == 3 * 7168 * 2048
    assert v3.n_params() - v3.n_active_params() == 58 * (256 - 8) * 3 * 7168 * 2048


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"L": 0}, "L must be a positive integer"),
        ({"D": 2.5}, "D must be a positive integer"),
        ({"K": 3}, "multiple of K"),
        ({"L": 10**6}, "beyond any transformer"),
        ({"norm": "batch"}, "norm must be"),
        ({"attention": "sliding"}, "positive window"),
        ({"attention": ("full",)}, "attention must name"),
        ({"attention": "mla"}, "mla layers need"),
        ({"kv_source": (1, 1)}, "kv_source must point"),
        ({"kv_source": (0,)}, "kv_source must point"),
        ({"moe": MixtureOfExperts(E=4, k=2, F=8, n_dense_layers=3)}, "dense layers"),
    ],
)
def test_impossible_sizes_are_refused_in_a_sentence(change: dict, says: str) -> None:
    sizes = {"L": 2, "D": 8, "F": 8, "N": 4, "K": 2, "H": 2, "V": 5} | change
    with pytest.raises(ValueError, match=says):
        Architecture("x", **sizes)


def test_more_active_experts_than_experts_are_refused() -> None:
    with pytest.raises(ValueError, match="k must lie between 1 and E"):
        MixtureOfExperts(E=4, k=5, F=8)


@pytest.mark.parametrize(
    ("typed", "name"),
    [("Llama 2 13B", "llama-2-13b"), ("LLAMA_2_13b", "llama-2-13b"), ("Mixtral", "mixtral-8x7b")],
)
def test_names_are_found_whatever_their_case_and_punctuation(typed: str, name: str) -> None:
    assert catalog.model(typed).name == name


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("h100", "H100 SXM"),
        ("H100-SXM", "H100 SXM"),
        ("tpu-V5E", "TPU v5e"),
        ("A100", "A100 80GB SXM"),
    ],
)
def test_hardware_is_found_by_its_short_name(typed: str, name: str) -> None:
    assert catalog.hardware(typed).name == name


def test_unknown_names_list_the_known_and_the_closest() -> None:
    with pytest.raises(ValueError, match=r"Did you mean llama-2-13b\?.*gpt-3"):
        catalog.model("llama-2-13")
    with pytest.raises(ValueError, match=r"Known: A100 80GB SXM.*TPU v5p"):
        catalog.hardware("cray")


def test_memory_is_what_the_driver_reports() -> None:
    """Totals of nvidia-smi and rocm-smi, rounded by hand; the decimal reading is 6% too small."""
    reported = {"a100": 85.9, "a100 40gb": 42.9, "h100": 85.5, "h200": 150.8, "mi300x": 206.1}
    for name, gigabytes in reported.items():
        assert catalog.hardware(name).hbm_bytes / 1e9 == pytest.approx(gigabytes, abs=0.06)
        assert isinstance(catalog.hardware(name).hbm_bytes, int)


def test_every_chip_states_dense_rates_with_source_and_date() -> None:
    for chip in catalog.HARDWARE.values():
        assert chip.source
        assert chip.date
        assert chip.link
        eight_bit = chip.flops_per_s["int8"] / chip.flops_per_s["bf16"]
        # a sparse figure among dense ones would give 1 or 4; the v5e's sheet prints 393 and 197,
        # the L40S's 733 and 362.05; GeForce cards sum bf16 in fp32 at half the rate
        halved = 2 if chip.name.startswith("RTX") else 1
        assert eight_bit == pytest.approx(2 * halved, rel=0.013)
    assert catalog.hardware("h100").critical_intensity() == pytest.approx(295.2, abs=0.05)
    assert catalog.hardware("tpu v5e").critical_intensity() == pytest.approx(240.5, abs=0.05)
    assert catalog.hardware("worked-v5e").critical_intensity() == pytest.approx(243.2, abs=0.05)
    with pytest.raises(ValueError, match="It has: bf16, int8"):
        catalog.hardware("v5e").peak_flops_per_s("fp8")
