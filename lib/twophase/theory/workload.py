"""What is asked of a deployment, checked."""

from dataclasses import dataclass
from fractions import Fraction

from twophase.theory._ops import exact
from twophase.theory.grid import Grid
from twophase.theory.hardware import bytes_per_value
from twophase.theory.quantization import BLOCK_FORMATS, integer_bits_per_weight
from twophase.theory.weight_format import stored_bytes_per_value

LARGEST = 10**12
SPLITS = ("heads", "evenly")
DISPATCHES = ("bf16", "fp8")
INTEGERS = {"int8": 8, "int4": 4, "int3": 3, "int2": 2}
GROUP = 128  # of integers of fewer than 8 bits, if nothing else is said
WHOLE = ("batch", "n_prompt", "n_output", "context", "n_chips", "group")
WHOLE_LAYERS = ("pipeline", "experts", "replicas", "gathered")
OPTIONAL = ("n_prompt", "n_output", "group")
SIZES = {
    "activation_bytes": 10**24,
    "overhead_bytes": 10**24,
    "overhead_fraction": 1000,
    "price_per_chip_hour": 10**24,
}


@dataclass(frozen=True)
class Workload:
    """What is asked of a deployment. `context` positions are cached per sequence at most.

    `n_prompt` tokens come in and `n_output` go out per request; without `n_output` there are no
    requests, only steps. `compute` is the format of the products, whatever `weights` are stored in;
    `embeddings` that of embedding, head, norms and router, which narrow checkpoints keep in bf16,
    `attention` that of attention's matrices, if it is not that of the weights.
    `activation_bytes` and `overhead_bytes` are set aside on each chip, `overhead_fraction` on top
    of everything else; an engine uses `usable_fraction` of a chip's memory.

    Integers have an fp16 scale, and a zero point of `zero_bits`, for each `group` weights; without
    a group those of fewer than 8 bits have 128 in one, and int8 a scale for a row, which is too
    little to count. Formats whose blocks carry their scales (q4_k, nvfp4, nf4) are counted with
    them.

    `split_cache`: "heads" gives each chip the KV heads of its query heads (a latent has no heads:
    every chip keeps all of it); "evenly" cuts by position or by sequence.

    `layout`: one of `sharded_layouts`, for chips that `link` joins (of the catalog; None: the one
    that usually does); without one, tensor parallelism whose messages are not counted. `grid`: ways
    of sharing together, as engines name them; `link` joins chips of a machine, `between` machines;
    the busiest experts get `skew` times an even share of the visits. Tokens travel to experts of
    other copies in `dispatch`, bf16 or fp8 with a scale for 128 values (DeepSeek), and back in the
    format of activations.

    `found_share`: of a prompt's tokens, those whose keys and values are in the cache already.
    `draft_length` tokens are drafted for each call of the model, and each of them is kept with the
    chance `acceptance`, given that those before it were.
    """

    batch: int = 1
    context: int = 1024
    n_prompt: int | None = None
    n_output: int | None = None
    n_chips: int = 1
    weights: str = "bf16"
    kv: str = "bf16"
    compute: str = "bf16"
    embeddings: str | None = None
    attention: str | None = None
    group: int | None = None
    zero_bits: int = 0
    split_cache: str = "heads"
    activation_bytes: float = 0
    overhead_bytes: float = 0
    overhead_fraction: float = 0
    usable_fraction: float = 0.9
    price_per_chip_hour: float | None = None
    layout: str | None = None
    link: str | None = None
    grid: Grid | None = None
    between: str | None = None
    skew: float = 1
    dispatch: str = "bf16"
    found_share: float = 0
    draft_length: int | None = None
    acceptance: float | None = None

    def __post_init__(self) -> None:
        for name in WHOLE:
            value = getattr(self, name)
            missing = value is None and name in OPTIONAL
            if not missing and (
                isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST
            ):
                raise ValueError(
                    f"{name} must be a whole number from 1 to 10^12, but it is {_shown(value)}."
                )
        for name, most in SIZES.items():
            value = getattr(self, name)
            if not (name == "price_per_chip_hour" and value is None):
                _check(name, value, 0, most, f"zero or more and at most {most:.0e}")
        _check("zero_bits", self.zero_bits, 0, 16, "from 0 to 16")
        if (self.group or self.zero_bits) and self.weights not in INTEGERS:
            raise ValueError(
                f"Groups and zero points are of integers, but the weights are {self.weights!r}."
            )
        _check("usable_fraction", self.usable_fraction, 1e-3, 1, "from 0.001 to 1")
        if self.prompt < 1 or self.prompt + (self.n_output or 0) > self.context:
            prompt = f"the prompt has {self.n_prompt} and " if self.n_prompt is not None else ""
            raise ValueError(
                f"Prompt and output must fit the context of {self.context} positions, but {prompt}"
                f"the output has {self.n_output or 0}."
            )
        if self.split_cache not in SPLITS:
            raise ValueError(
                f"split_cache must be {' or '.join(SPLITS)}, but it is {self.split_cache!r}."
            )
        self._check_layout()
        _check("found_share", self.found_share, 0, 1, "a share from 0 to 1")
        if (self.draft_length is None) != (self.acceptance is None):
            raise ValueError("A draft has both a length and an acceptance.")
        if self.acceptance is not None:
            _check("acceptance", self.acceptance, 0, 1, "a probability from 0 to 1")
            _check("draft_length", self.draft_length, 1, 1000, "a whole number from 1 to 1,000")
            if self.n_output is not None and (self.draft_length or 0) >= self.n_output:
                raise ValueError(
                    f"A round drafts {self.draft_length:,} tokens, but the answer has"
                    f" {self.n_output:,}: take a --draft-length below --output."
                )
        for stored in (self.weights, self.attention or "bf16"):
            stored_bytes_per_value(stored)
        for dtype in (self.kv, self.compute, self.kept):
            bytes_per_value(dtype)

    def _check_layout(self) -> None:
        if self.layout is not None and self.grid is not None:
            raise ValueError("Give either a layout or --tp, --dp, --ep and --pp, not both.")
        shared = self.layout is not None or self.grid is not None
        if shared and self.split_cache != "heads":
            raise ValueError(
                "split_cache is for plans without a layout: a layout says where caches lie"
                " (batch-split, length-split, --dp)."
            )
        if not shared and self.link is not None:
            raise ValueError("A link carries the messages of a layout: say which layout, too.")
        if self.grid is None and (self.between is not None or self.skew != 1):
            raise ValueError("--between and --skew go with --tp, --dp, --ep or --pp.")
        _check("skew", self.skew, 1, 10**6, "1 or more")
        if self.dispatch not in DISPATCHES:
            raise ValueError(
                f"--dispatch must be {' or '.join(DISPATCHES)}, but it is {self.dispatch!r}."
            )
        travels = self.layout == "experts" or (self.grid is not None and self.grid.sharing > 1)
        if self.dispatch != "bf16" and not travels:
            raise ValueError(
                "--dispatch is of tokens that travel to experts of other copies: give an --ep above"
                " --tp, or --layout experts."
            )
        if self.grid is not None and self.grid.n_chips != self.n_chips:
            raise ValueError(
                f"{self.grid} takes {self.grid.n_chips:,} chips, but there are {self.n_chips:,}:"
                " leave --chips away."
            )

    @property
    def cut_chips(self) -> int:
        """Chips over which a layer's matrices are cut while it runs; 1 where a chip has all of
        what it needs of a layer."""
        if self.grid is not None:
            return self.grid.tp
        return 1 if self.layout in WHOLE_LAYERS else self.n_chips

    @property
    def layer_chips(self) -> int:
        """Chips that send each other something in every layer."""
        if self.grid is not None:
            return self.grid.tp * self.grid.sharing
        return 1 if self.layout in ("pipeline", "replicas") else self.n_chips

    @property
    def sends(self) -> bool:
        """Whether chips exchange messages at all."""
        staged = self.layout == "pipeline" if self.grid is None else self.grid.pp > 1
        return self.layer_chips > 1 or (staged and self.n_chips > 1)

    @property
    def found(self) -> int:
        """Tokens of a prompt that are in the cache already; the last one never is, since its logits
        are asked for."""
        return min(int(self.exact("found_share") * self.prompt), self.prompt - 1)

    @property
    def prompt(self) -> int:
        """The prompt's length: what the output leaves of the context, unless given."""
        return self.context - (self.n_output or 0) if self.n_prompt is None else self.n_prompt

    @property
    def mean_context(self) -> Fraction:
        """Keys that a step meets per sequence, averaged over a request's steps; the whole context
        if there are no requests."""
        if self.n_output is None:
            return Fraction(self.context)
        return self.prompt + Fraction(self.n_output, 2)

    @property
    def kept(self) -> str:
        """The format of embedding, head, norms and router."""
        if self.embeddings is not None:
            return self.embeddings
        narrow = stored_bytes_per_value(self.weights) < bytes_per_value("bf16")
        return "bf16" if narrow else self.weights

    def bytes_per_attention(self) -> Fraction | None:
        """Bytes of a parameter of attention where it has a format of its own."""
        return None if self.attention is None else stored_bytes_per_value(self.attention)

    def bytes_per_dispatched(self) -> Fraction | None:
        """Bytes of a value on its way to an expert, its part of a scale included; None if it is in
        the format of activations."""
        return None if self.dispatch == "bf16" else 1 + Fraction(4, 128)

    def bytes_per_weight(self) -> Fraction:
        """Bytes of a parameter of attention and MLP, its share of a group's scale and zero point
        included."""
        if self.weights == "fp4":  # MX: a power of two for 32
            return BLOCK_FORMATS["mxfp4"].bits_per_weight / 8
        group = self.scale_group
        if group is None:
            return stored_bytes_per_value(self.weights)
        bits = Fraction(INTEGERS[self.weights])
        return Fraction(integer_bits_per_weight(bits, group, 2, self.zero_bits)) / 8

    @property
    def scale_group(self) -> int | None:
        """How many weights share an integer scale that is counted; None if there is none."""
        if self.group is not None or self.weights not in INTEGERS:
            return self.group
        return GROUP if self.weights != "int8" else None

    def exact(self, name: str) -> Fraction:
        """One of the sizes as the decimal that it is written as."""
        return Fraction(exact(getattr(self, name))[0])


def _check(name: str, value: object, low: float, high: float, says: str) -> None:
    number = isinstance(value, (int, float, Fraction)) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # type: ignore[operator]
        raise ValueError(f"{name} must be {says}, but it is {_shown(value)}.")


def _shown(value: object) -> str:
    huge = isinstance(value, int) and abs(value) > 10**30
    return "an integer beyond that" if huge else repr(value)
