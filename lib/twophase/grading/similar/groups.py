"""Who belongs together: in a group all agree with all, so no chain of pairs joins strangers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from twophase.grading.similar.pairs import Compared, Pair, Students
from twophase.grading.similar.traces import Mark

FEW, FEW_SHARE = 3, 0.1  # a mark that more students than this share is no trace of a copy
MOST_GROUPS = 200
MOST_PAIRS = 15  # of a group, told
HARD = {"file", "cell", "metadata", "person"}
SEVERAL = 3  # one long comment in common can be chance in a large class
STRONG_BITS = 40.0  # what a trace counts for in the order of groups, beside fragments' bits


@dataclass(frozen=True)
class Agreement:
    """A group's pairs in one exercise, the strongest first. `others`: per pair, how many more have
    half of what it shares."""

    exercise: Compared
    pairs: tuple[Pair, ...]
    others: tuple[int, ...]
    n_pairs: int


@dataclass(frozen=True)
class Trace:
    """A mark and the files in the group that have it."""

    mark: Mark
    files: tuple[str, ...]


@dataclass
class SimilarGroup:
    """Students (or teams) with their files in one topic. `strength` only orders."""

    topic: str
    parties: tuple[Students, ...]
    agreements: list[Agreement] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    strength: float = 0.0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(" + ".join(p) for p in self.parties)

    @property
    def files(self) -> tuple[str, ...]:
        """All files that a pair or a trace names."""
        found = {f for a in self.agreements for p in a.pairs for f in (p.a.file, p.b.file)}
        return tuple(sorted(found | {f for t in self.traces for f in t.files}))


Traces = Mapping[Mark, Mapping[str, Students]]


def groups_of(
    compared: Sequence[Compared], marks: Mapping[str, Traces]
) -> tuple[list[SimilarGroup], int]:
    """The groups of all exercises, strongest first, and how many more there were than are told."""
    found: dict[tuple[str, frozenset[Students]], SimilarGroup] = {}

    def group(topic: str, parties: frozenset[Students]) -> SimilarGroup:
        return found.setdefault((topic, parties), SimilarGroup(topic, tuple(sorted(parties))))

    for one in compared:
        for parties, pairs in cliques(one.pairs):
            g = group(one.topic, parties)
            told = tuple(pairs[:MOST_PAIRS])
            others = tuple(one.others(p) for p in told)
            g.agreements.append(Agreement(one, told, others, len(pairs)))
            g.strength += pairs[0].weight
    for topic, there in marks.items():
        rare = rare_marks(there)
        for parties, strong in _telling(rare).items():
            group(topic, parties).strength += STRONG_BITS * strong
        _attach(there, rare, [g for (t, _), g in found.items() if t == topic])
    ordered = sorted(found.values(), key=lambda g: (-g.strength, g.topic, g.names))
    return ordered[:MOST_GROUPS], max(0, len(ordered) - MOST_GROUPS)


def cliques(pairs: Sequence[Pair]) -> list[tuple[frozenset[Students], list[Pair]]]:
    """Groups in which all agree with all, which cover all pairs; with theirs, strongest first."""
    best: dict[frozenset[Students], Pair] = {}
    near: dict[Students, dict[Students, float]] = defaultdict(dict)
    for pair in pairs:
        if best.setdefault(frozenset((pair.a.party, pair.b.party)), pair) is pair:
            near[pair.a.party][pair.b.party] = pair.weight
            near[pair.b.party][pair.a.party] = pair.weight
    covered: set[frozenset[Students]] = set()
    out: list[tuple[frozenset[Students], list[Pair]]] = []
    for both in best:
        if both in covered:
            continue
        a, b = sorted(both)
        members = [a, b]
        common = near[a].keys() & near[b].keys()
        while common:
            nearest = max(common, key=lambda c: (near[a][c] + near[b][c], c))
            members.append(nearest)
            common &= near[nearest].keys()
        inside = [frozenset(two) for two in combinations(members, 2)]
        covered.update(inside)
        out.append((frozenset(members), sorted((best[p] for p in inside), key=lambda p: -p.weight)))
    return out


def rare_marks(there: Traces) -> dict[Mark, frozenset[Students]]:
    """The marks of two students or more, and of few, with those who have them."""
    students = len({p for files in there.values() for p in files.values()})
    found: dict[Mark, frozenset[Students]] = {}
    for mark, files in there.items():
        parties = frozenset(files.values())
        in_all = frozenset.intersection(*map(frozenset, parties))  # it is one team's own work
        if 2 <= len(parties) <= max(FEW, FEW_SHARE * students) and not in_all:
            found[mark] = parties
    return found


def _telling(rare: Mapping[Mark, frozenset[Students]]) -> dict[frozenset[Students], int]:
    """Who shares marks that tell something by themselves, and how many: an id or a person's name,
    or SEVERAL long comments or texts."""
    strong = Counter(parties for mark, parties in rare.items() if mark.strong)
    hard = {parties for mark, parties in rare.items() if mark.kind in HARD}
    return {parties: n for parties, n in strong.items() if parties in hard or n >= SEVERAL}


def _attach(
    there: Traces, rare: Mapping[Mark, frozenset[Students]], groups: Sequence[SimilarGroup]
) -> None:
    """To each group the rare marks that two of it share."""
    of: dict[Students, list[SimilarGroup]] = defaultdict(list)
    for g in groups:
        for party in g.parties:
            of[party].append(g)
    for mark, parties in sorted(rare.items()):
        for g in {id(g): g for p in parties for g in of[p]}.values():
            if len(parties & {*g.parties}) >= 2:
                files = sorted(f for f, p in there[mark].items() if p in g.parties)
                g.traces.append(Trace(mark, tuple(files)))
