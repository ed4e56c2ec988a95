"""Answers to one exercise against each other: what agreement is worth here, and who agrees.

What the course shows is taken out first. Each fragment that is left weighs as much as it is rare:
-log2 of the share of the other students who wrote it too, and nothing once that share reaches
COMMON. A pair's share is the weight they have in common, of the answer that has less.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product

from twophase.grading.similar import fragments as similar_fragments
from twophase.grading.similar.fragments import Fragment

COMMON = 0.25  # a fragment that this share of the others has tells nothing about two
ENOUGH = 15  # rarer fragments that an answer must have; about three lines
FOLLOWS = 0.8  # share of an answer's fragments that are the model solution's
Students = tuple[str, ...]


@dataclass(frozen=True)
class Answer:
    """What one file has in an exercise's cell."""

    file: str
    party: Students
    source: str


@dataclass(frozen=True)
class Pair:
    """Two answers that agree. `same` of `rarer`: rarer fragments in common, of the answer that has
    less of them. `share` is the same by weight, from 0 to 1; `weight` that weight, in bits."""

    a: Answer
    b: Answer
    same: int
    rarer: int
    share: float
    weight: float


@dataclass(frozen=True)
class CommonAnswer:
    """An answer so common that it tells nothing: the same but for names in this many files."""

    files: tuple[str, ...]
    source: str


@dataclass
class Compared:
    """One exercise compared. `comparisons`: how many pairs were looked at one by one. `students`:
    how many handed in something."""

    topic: str
    id: str
    title: str
    answers: int = 0
    students: int = 0
    empty: tuple[str, ...] = ()
    short: tuple[str, ...] = ()
    follows: tuple[str, ...] = ()
    common: tuple[CommonAnswer, ...] = ()
    cut: tuple[str, ...] = ()
    unparsed: tuple[str, ...] = ()
    pairs: list[Pair] = field(default_factory=list)
    comparisons: int = 0
    weights: Mapping[Fragment, float] = field(default_factory=dict)
    owners: Mapping[Fragment, set[int]] = field(default_factory=dict)
    parties: tuple[Students, ...] = ()

    def others(self, pair: Pair) -> int:
        """How many other students or teams have at least half of the rarer fragments in common."""
        a, b = (similar_fragments.fragments_of(x.source).fragments for x in (pair.a, pair.b))
        shared = [f for f in a & b if self.weights.get(f, 0) > 0]
        theirs = Counter(o for f in shared for o in self.owners[f])
        ours = {*pair.a.party, *pair.b.party}
        return sum(
            2 * n >= len(shared) and not ours & {*self.parties[o]} for o, n in theirs.items()
        )


@dataclass(frozen=True)
class _Node:
    """All answers with the same fragments. `worth`: the sum of their weights."""

    fragments: frozenset[Fragment]
    answers: tuple[Answer, ...]
    worth: float
    rarer: frozenset[Fragment]


def compare(
    topic: str,
    exercise_id: str,
    title: str,
    answers: Sequence[Answer],
    given: frozenset[Fragment],
    published: frozenset[Fragment],
    solution: frozenset[Fragment],
    least: float,
) -> Compared:
    """Compare all answers to one exercise; pairs of at least the share `least`, heaviest first."""
    out = Compared(topic, exercise_id, title)
    by_source: dict[str, list[Answer]] = {}
    for answer in answers:
        by_source.setdefault(answer.source, []).append(answer)
    same: dict[frozenset[Fragment], list[Answer]] = {}
    for source, copies in by_source.items():
        code = similar_fragments.fragments_of(source)
        files = tuple(a.file for a in copies)
        own = code.fragments - given
        out.cut += files if code.cut else ()
        out.unparsed += files if not code.parsed else ()
        if not own:
            out.empty += files
            continue
        if len(solution) >= ENOUGH <= len(own) and len(own & solution) >= FOLLOWS * len(own):
            out.follows += files
        same.setdefault(own - published, []).extend(copies)
    _weigh(out, same)
    _pair(out, _nodes(out, same), least)
    return out


def weight(having: int, students: int) -> float:
    """Bits that a fragment tells about two who share it: `having` of `students` wrote it, those two
    among them.

    -log2 of the share of the others who have it, counted as if half of one more in two and a half
    had: nobody is surprised by two of two.
    """
    share = (max(0, having - 2) + 0.5) / (max(0, students - 2) + 2.5)
    return -math.log2(share) if share < COMMON else 0.0


def _weigh(out: Compared, same: Mapping[frozenset[Fragment], Sequence[Answer]]) -> None:
    """Who has which fragment. Several files of one student or team count once."""
    numbers: dict[Students, int] = {}
    owners: dict[Fragment, set[int]] = {}
    for fragments, copies in same.items():
        theirs = {numbers.setdefault(a.party, len(numbers)) for a in copies}
        for f in fragments:
            owners.setdefault(f, set()).update(theirs)
    out.parties, out.students, out.owners = tuple(numbers), len(numbers), owners
    out.answers = sum(map(len, same.values())) + len(out.empty)
    out.weights = {f: weight(len(o), len(numbers)) for f, o in owners.items()}


def _nodes(out: Compared, same: Mapping[frozenset[Fragment], Sequence[Answer]]) -> list[_Node]:
    """Those that have enough to say, least first; the others are noted as common or as short."""
    found: list[_Node] = []
    many = max(2, COMMON * out.students)
    for fragments, copies in same.items():
        rarer = frozenset(f for f in fragments if out.weights[f] > 0)
        files = tuple(a.file for a in copies)
        if len(rarer) >= ENOUGH:
            worth = math.fsum(out.weights[f] for f in rarer)
            found.append(_Node(fragments, tuple(copies), worth, rarer))
        elif len(fragments) >= ENOUGH and len({a.party for a in copies}) > many:
            out.common += (CommonAnswer(files, copies[0].source),)
        else:
            out.short += tuple(f for f in files if f not in out.follows)
    return sorted(found, key=lambda n: (n.worth, n.answers[0].file))


def _pair(out: Compared, nodes: Sequence[_Node], least: float) -> None:
    """Every pair of at least `least`, without looking at all pairs.

    Two that share this much of the lighter one must share one of its rarest fragments: of those
    that together weigh more than the rest may. Only whoever has one of these is looked at (Bayardo,
    Ma and Srikant 2007 call it a prefix filter).
    """
    at: dict[Fragment, list[int]] = {}
    for n, node in enumerate(nodes):
        for f in node.rarer:
            at.setdefault(f, []).append(n)
    for n, node in enumerate(nodes):
        _add(out, node, node, len(node.rarer), node.worth)
        candidates: set[int] = set()
        spare = (1 - least) * node.worth + 1e-9
        for f in sorted(node.rarer, key=lambda f: len(at[f])):
            candidates.update(at[f])
            spare -= out.weights[f]
            if spare < 0:
                break
        for m in sorted(c for c in candidates if c > n):
            out.comparisons += 1
            shared = node.rarer & nodes[m].rarer
            found = math.fsum(out.weights[f] for f in shared)
            if found >= least * node.worth - 1e-9:
                _add(out, node, nodes[m], len(shared), found)
    out.pairs.sort(key=lambda p: (-p.weight, -p.share, p.a.file, p.b.file))


def _add(out: Compared, small: _Node, large: _Node, same: int, found: float) -> None:
    """The pairs of two nodes, or of the answers in one; never of one team with itself."""
    within, across = combinations(small.answers, 2), product(small.answers, large.answers)
    share = min(1.0, found / small.worth)
    for a, b in within if small is large else across:
        if set(a.party).isdisjoint(b.party):
            first, second = (a, b) if a.file <= b.file else (b, a)
            out.pairs.append(Pair(first, second, same, len(small.rarer), share, found))
