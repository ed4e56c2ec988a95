"""How many chips share a model, and in which ways: tensor, data, expert and pipeline parallelism
together, under the names that engines give them."""

from dataclasses import dataclass

LARGEST = 10**6  # chips


@dataclass(frozen=True)
class Grid:
    """`pp` stages of layers, each with `dp` copies of attention, each of them cut over `tp` chips.
    Whole experts are dealt out to `ep` groups of chips: up to `tp` of them inside one copy, beyond
    that over ep / tp copies, whose tokens travel. ep = 1: every copy has all experts, their columns
    cut over its chips.

    Chips are numbered copy after copy and stage after stage, so that those of a copy are
    neighbors. ValueError for what is no whole number, and for experts that the chips cannot share.
    """

    tp: int = 1
    dp: int = 1
    ep: int = 1
    pp: int = 1

    def __post_init__(self) -> None:
        for name in ("tp", "dp", "ep", "pp"):
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= LARGEST:
                raise ValueError(
                    f"--{name} must be a whole number from 1 to {LARGEST:,}, but it is {value!r}."
                )
        if self.tp % self.ep and (self.ep % self.tp or self.dp % self.sharing):
            raise ValueError(
                f"Experts in {self.ep} groups do not divide over tp {self.tp} and dp {self.dp}:"
                " take an --ep that divides --tp, or a multiple of it that divides tp x dp."
            )

    @classmethod
    def completed(cls, tp: int | None, dp: int | None, ep: int | None, pp: int | None) -> "Grid":
        """With 1 for what is not given; for `dp`, the copies that so many groups of experts take:
        `--ep 8` alone is eight copies of attention that share experts."""
        copies = dp if dp is not None else max(1, -(-(ep or 1) // max(1, tp or 1)))
        return cls(_or_one(tp), copies, _or_one(ep), _or_one(pp))

    @property
    def n_chips(self) -> int:
        """Chips of all stages."""
        return self.tp * self.dp * self.pp

    @property
    def sharing(self) -> int:
        """Copies of attention that have one set of experts together."""
        return max(1, self.ep // self.tp)

    @property
    def expert_columns(self) -> int:
        """Chips over which the columns of one expert are cut."""
        return max(1, self.tp // self.ep)

    def __str__(self) -> str:
        named = {"tp": self.tp, "dp": self.dp, "ep": self.ep, "pp": self.pp}
        return " ".join(f"{name} {n}" for name, n in named.items() if n > 1) or "tp 1"


def _or_one(value: int | None) -> int:
    return 1 if value is None else value
