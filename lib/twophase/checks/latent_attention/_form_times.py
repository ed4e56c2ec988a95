"""What a pass of latent attention costs in either form, and the ways to choose between them:
latent_attention-choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Layer = dict[str, int]
Pass = Sequence[int]  # B, T, S
Chip = dict[str, float]
Plan = list[tuple[str, float]]  # form and seconds of each pass
Choose = Callable[[Layer, list[Pass], Chip], Plan]
EXPANDED, ABSORBED = "expanded", "absorbed"
FORMS = (EXPANDED, ABSORBED)
BYTES = 2  # of every number


def flops(layer: Layer, work: Pass) -> dict[str, int]:
    """Both products with the up-projections, all pairs; a multiply-add is 2."""
    B, T, S = work
    N, R, rope = layer["N"], layer["R"], layer["rope_dim"]
    up = R * (layer["nope_dim"] + layer["v_dim"])
    expanded = S * up + T * S * (layer["nope_dim"] + rope + layer["v_dim"])
    absorbed = T * up + T * S * (2 * R + rope)
    return {EXPANDED: 2 * B * N * expanded, ABSORBED: 2 * B * N * absorbed}


def moved_bytes(layer: Layer, work: Pass) -> dict[str, int]:
    """Weights and cache read once; what goes to memory between the products is written and
    read."""
    B, T, S = work
    N, R, rope = layer["N"], layer["R"], layer["rope_dim"]
    heads = layer["nope_dim"] + layer["v_dim"]
    once = N * R * heads + B * S * (R + rope)
    expanded = once + 2 * B * S * N * heads + B * T * N * (heads + rope)
    absorbed = once + B * T * N * (heads + rope + 4 * R)
    return {EXPANDED: BYTES * expanded, ABSORBED: BYTES * absorbed}


def scratch_bytes(layer: Layer, work: Pass) -> int:
    """What the unfolded keys and values take."""
    B, _, S = work
    return BYTES * B * S * layer["N"] * (layer["nope_dim"] + layer["v_dim"])


def times_s(layer: Layer, work: Pass, chip: Chip) -> dict[str, float]:
    """The larger of computing and moving, in either form."""
    computed, moved = flops(layer, work), moved_bytes(layer, work)
    return {
        form: max(computed[form] / chip["flops_per_s"], moved[form] / chip["bytes_per_s"])
        for form in FORMS
    }


def fits(layer: Layer, work: Pass, chip: Chip) -> bool:
    """Whether there is room to unfold."""
    return scratch_bytes(layer, work) <= chip["scratch_bytes"]


def planned(layer: Layer, passes: list[Pass], chip: Chip, forms: list[str]) -> Plan:
    """These forms, with the time that each pass takes in its own."""
    return [(f, times_s(layer, w, chip)[f]) for w, f in zip(passes, forms, strict=True)]


def best(layer: Layer, passes: list[Pass], chip: Chip) -> Plan:
    """The faster form of each pass, if there is room for it."""
    return quicker_where(lambda work: fits(layer, work, chip), layer, passes, chip)


def quicker_where(
    room: Callable[[Pass], bool], layer: Layer, passes: list[Pass], chip: Chip
) -> Plan:
    """The faster form where there is room, else the absorbed one."""
    forms = []
    for work in passes:
        times = times_s(layer, work, chip)
        forms.append(EXPANDED if room(work) and times[EXPANDED] < times[ABSORBED] else ABSORBED)
    return planned(layer, passes, chip, forms)


def by_rule(rule: Callable[[Layer, Pass, Chip], bool]) -> Choose:
    """Expand where the rule says so, and there is room."""

    def choose(layer: Layer, passes: list[Pass], chip: Chip) -> Plan:
        forms = [
            EXPANDED if fits(layer, work, chip) and rule(layer, work, chip) else ABSORBED
            for work in passes
        ]
        return planned(layer, passes, chip, forms)

    return choose


def _fewer(count: Callable[[Layer, Pass], dict[str, int]]) -> Choose:
    def rule(layer: Layer, work: Pass, chip: Chip) -> bool:
        counted = count(layer, work)
        return counted[EXPANDED] < counted[ABSORBED]

    return by_rule(rule)


def _long_limit(layer: Layer, work: Pass, chip: Chip) -> bool:
    heads = layer["nope_dim"] + layer["v_dim"]
    spared = 2 * layer["R"] - heads
    return spared > 0 and work[1] * spared > layer["R"] * heads


def room_of_one_sequence(layer: Layer, passes: list[Pass], chip: Chip) -> Plan:
    """All as if there were one sequence."""
    return best(layer, [(1, T, S) for _, T, S in passes], chip)


def room_left_out(layer: Layer, passes: list[Pass], chip: Chip) -> Plan:
    """The faster form, whether or not there is room."""
    return quicker_where(lambda work: True, layer, passes, chip)


def room_of_one_head(layer: Layer, passes: list[Pass], chip: Chip) -> Plan:
    """Room is asked for one head's keys and values."""
    one = {**layer, "N": 1}
    return quicker_where(lambda work: fits(one, work, chip), layer, passes, chip)


def in_turn(layer: Layer, passes: list[Pass], chip: Chip) -> Plan:
    """Computing and moving are added up."""
    plan = []
    for work in passes:
        computed, moved = flops(layer, work), moved_bytes(layer, work)
        total = {
            f: computed[f] / chip["flops_per_s"] + moved[f] / chip["bytes_per_s"] for f in FORMS
        }
        if not fits(layer, work, chip):
            del total[EXPANDED]
        form = min(total, key=total.__getitem__)
        plan.append((form, total[form]))
    return plan


def first_for_all(layer: Layer, passes: list[Pass], chip: Chip) -> Plan:
    """The first pass decides."""
    first = best(layer, passes[:1], chip)[0][0]
    forms = [first if fits(layer, work, chip) else ABSORBED for work in passes]
    return planned(layer, passes, chip, forms)


always_absorbed: Choose = by_rule(lambda layer, work, chip: False)
always_expanded: Choose = by_rule(lambda layer, work, chip: True)
unless_one_query: Choose = by_rule(lambda layer, work, chip: work[1] > 1)
whole_prompts: Choose = by_rule(lambda layer, work, chip: work[1] == work[2])
fewer_flops: Choose = _fewer(flops)
fewer_bytes: Choose = _fewer(moved_bytes)
limit_of_long_contexts: Choose = by_rule(_long_limit)
