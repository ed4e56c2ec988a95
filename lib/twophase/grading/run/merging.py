"""The results of all parts as one. What is missing, there twice or graded otherwise is named."""

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
from twophase.grading.run.shards import ShardNote, number_of, read_note

NAMED = 10  # names in one sentence


@dataclass(frozen=True)
class Part:
    """A part's folder, its note, and the index of its results."""

    folder: Path
    note: ShardNote
    index: reader.Index

    def __str__(self) -> str:
        return f"{self.folder} (part {self.note.shard})"

    @property
    def torn(self) -> bool:
        return self.index.path.stat().st_size > self.index.end


@dataclass
class Merge:
    """What would be merged: each submission's part. `problems` prevent it; `remarks` do not."""

    parts: list[Part]
    owner: dict[str, Part] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[bytes]:
        """The merged file: one line for each submission, by name."""
        for name in sorted(self.owner):
            yield from self.owner[name].index.lines([name])


def plan_merge(folders: Sequence[Path]) -> Merge:
    """What to merge, and what does not fit. Raises ValueError for a folder that is no part."""
    parts = [Part(f, read_note(f), reader.Index(reader.results_path(f))) for f in folders]
    made = Merge(parts, problems=list(_different_courses(parts)))
    if not made.problems:
        made.problems += _not_all_there(parts)
        _each_once(made)
        made.problems += _different_releases(made)
    return made


def _different_courses(parts: Sequence[Part]) -> Iterator[str]:
    first, *others = parts
    mine = first.note.conditions
    for other in others:
        if other.note.shard.of != first.note.shard.of:
            yield f"{first} and {other} are parts of different divisions"
        elif other.note.submissions != first.note.submissions:
            differ = sorted(set(other.note.submissions) ^ set(first.note.submissions))
            yield f"{first} and {other} saw different submissions: {_some(differ)}"
        theirs = other.note.conditions
        for name in sorted(k for k in mine.keys() | theirs.keys() if mine.get(k) != theirs.get(k)):
            yield (
                f"{first} and {other} were graded under different conditions"
                f" ({name}: {mine.get(name)} and {theirs.get(name)})"
            )


def _not_all_there(parts: Sequence[Part]) -> Iterator[str]:
    there = defaultdict(list)
    for one in parts:
        there[one.note.shard.number].append(one)
        if one.torn:
            yield f"{one} ends in the middle of a line: its run was cut short; run it again"
        elif not one.note.complete:
            yield f"{one} is not complete: run it again, it goes on where it was"
    of, names = parts[0].note.shard.of, parts[0].note.submissions
    for number in range(1, of + 1):
        if number not in there:
            lost = [n for n in names if number_of(n, of) == number]
            yield f"part {number}/{of} is missing, with {len(lost)} submissions: {_some(lost)}"
        elif len(there[number]) > 1:
            yield f"part {number}/{of} is there more than once: {_folders(there[number])}"


def _each_once(made: Merge) -> None:
    """Find each submission's result: gaps and overlaps."""
    of, numbers = made.parts[0].note.shard.of, {one.note.shard.number for one in made.parts}
    names = made.parts[0].note.submissions
    gaps = []
    for name in names:
        owners = [one for one in made.parts if name in one.index.last]
        if owners:
            made.owner[name] = owners[0]
        elif number_of(name, of) in numbers:
            gaps.append(name)
        if len(owners) > 1:
            made.problems.append(
                f"{name} has a result in {_folders(owners)}, and they {_agreement(name, owners)}"
            )
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


def _different_releases(made: Merge) -> Iterator[str]:
    """A topic's results against several releases, or by another library than their part says: they
    were graded before something changed."""
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
            yield f"{said}, for example {_some(sorted(found.values()))}"
    if older:
        said = "graded by another version than the rest of their part"
        yield f"{said} ({len(older)}): {_some(older)}"


def write_merged(made: Merge, out: Path) -> Path:
    """Write the merged results, or leave the same ones. Raises ValueError if others are there."""
    path = out / "results.jsonl"
    with replacing(path) as file:
        file.writelines(made.lines())
        file.flush()
        if path.exists() and not filecmp.cmp(path, file.name, shallow=False):
            raise ValueError(
                f"{path} has other results, which are not overwritten; give another --out"
            )
    return path


def _folders(parts: Iterable[Part]) -> str:
    return " and ".join(str(one.folder) for one in parts)


def _some(names: Sequence[str]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")
