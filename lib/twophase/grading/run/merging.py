"""The results of all parts of a course as one. Whatever is missing, there twice or graded otherwise
is found and named."""

from __future__ import annotations

import filecmp
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from twophase.grading.files.atomic import replacing
from twophase.grading.results import reader
from twophase.grading.results.records import result_of
from twophase.grading.run import shards
from twophase.grading.run.shards import ShardNote, number_of

NAMED = 10  # names in one sentence


@dataclass(frozen=True)
class Part:
    """A part's folder, its note, and the index of its results."""

    folder: Path
    note: ShardNote
    index: reader.Index

    @property
    def torn(self) -> bool:
        return self.index.path.stat().st_size > self.index.end


@dataclass
class Merge:
    """What would be merged: each submission's part. Nothing is, if there are `problems`; `remarks`
    do no harm."""

    parts: list[Part]
    owner: dict[str, Part] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[bytes]:
        """The merged file: one line for each submission, by name."""
        for name in sorted(self.owner):
            yield from self.owner[name].index.lines([name])


def read_part(folder: Path) -> Part:
    """A part. Raises ValueError if the folder is none."""
    note = shards.read_note(folder)
    return Part(folder, note, reader.Index(reader.results_path(folder)))


def plan_merge(folders: Sequence[Path]) -> Merge:
    """What to merge. Raises ValueError for a folder that is no part; what does not fit together is
    among the problems."""
    made = Merge([read_part(folder) for folder in folders])
    _same_course(made)
    if not made.problems:
        _all_there(made)
        _each_once(made)
        _same_releases(made)
    return made


def _same_course(made: Merge) -> None:
    first = made.parts[0]
    for other in made.parts[1:]:
        if other.note.shard.of != first.note.shard.of:
            made.problems.append(
                f"{_said(first)} and {_said(other)} are parts of different divisions"
            )
        elif other.note.submissions != first.note.submissions:
            differ = sorted(set(other.note.submissions) ^ set(first.note.submissions))
            made.problems.append(
                f"{_said(first)} and {_said(other)} saw different submissions: {_some(differ)}"
            )
        mine, theirs = first.note.conditions, other.note.conditions
        for name in sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k)):
            said = (
                f"{_said(first)} and {_said(other)} were graded under different conditions"
                f" ({name}: "
            )
            made.problems.append(f"{said}{mine.get(name)} and {theirs.get(name)})")


def _all_there(made: Merge) -> None:
    of = made.parts[0].note.shard.of
    there = defaultdict(list)
    for one in made.parts:
        there[one.note.shard.number].append(one)
        if one.torn:
            made.problems.append(
                f"{_said(one)} ends in the middle of a line: its run was cut short; run it again"
            )
        elif not one.note.complete:
            made.problems.append(
                f"{_said(one)} is not complete: run it again, it goes on where it was"
            )
    for number in range(1, of + 1):
        if number not in there:
            lost = [n for n in made.parts[0].note.submissions if number_of(n, of) == number]
            made.problems.append(
                f"part {number}/{of} is missing, with {len(lost)} submissions: {_some(lost)}"
            )
        elif len(there[number]) > 1:
            made.problems.append(
                f"part {number}/{of} is there more than once: {_folders(there[number])}"
            )


def _each_once(made: Merge) -> None:
    """Find each submission's result: gaps and overlaps."""
    of, numbers = made.parts[0].note.shard.of, {one.note.shard.number for one in made.parts}
    names = made.parts[0].note.submissions
    gaps = []
    for name in names:
        owners = [one for one in made.parts if name in one.index.last]
        if len(owners) > 1:
            made.problems.append(
                f"{name} has a result in {_folders(owners)}, and they {_agreement(name, owners)}"
            )
        elif not owners and number_of(name, of) in numbers:
            gaps.append(name)
        made.owner |= {name: owners[0]} if owners else {}
    if gaps:
        made.problems.append(f"without a result ({len(gaps)}): {_some(gaps)}")
    gone = sorted({name for one in made.parts for name in one.index.last} - set(names))
    if gone:
        made.remarks.append(
            f"left out, since their submissions are no longer there ({len(gone)}): {_some(gone)}"
        )


def _agreement(name: str, owners: Sequence[Part]) -> str:
    results = [result_of(json.loads(line)) for one in owners for line in one.index.lines([name])]
    return "agree" if all(r == results[0] for r in results) else "do not agree"


def _same_releases(made: Merge) -> None:
    """All of a topic against one release, and all by this library: else a part was graded before
    something changed."""
    library = made.parts[0].note.conditions.get("library")
    releases: dict[str, dict[str, str]] = defaultdict(dict)
    older = []
    for line in made.lines():
        record = json.loads(line)
        releases[record["topic"]].setdefault(record["digests"]["release"], record["file"])
        older += [record["file"]] if record["digests"]["library"] != library else []
    for topic, found in sorted(releases.items()):
        if len(found) > 1:
            said = f"{topic or 'what belongs to no topic'} was graded against different releases"
            made.problems.append(f"{said}, for example {_some(sorted(found.values()))}")
    if older:
        made.problems.append(
            f"graded by another version than the rest of their part ({len(older)}): {_some(older)}"
        )


def write_merged(made: Merge, out: Path) -> Path:
    """Write the merged results, unless they are there already. Raises ValueError if other results
    are."""
    path = out / "results.jsonl"
    with replacing(path) as file:
        file.writelines(made.lines())
        file.flush()
        if path.exists() and not filecmp.cmp(path, file.name, shallow=False):
            raise ValueError(
                f"{path} has other results, which are not overwritten; give another --out"
            )
    return path


def _said(one: Part) -> str:
    return f"{one.folder} (part {one.note.shard})"


def _folders(parts: Iterable[Part]) -> str:
    return " and ".join(str(one.folder) for one in parts)


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
