"""Which exercises there are. A topic's package lists its exercises in teaching order: `ORDER =
("kv_bytes", "max_batch")`.

The functions here speak of the course as it is installed. A `Catalog` with an instructor's folders
speaks of the course with those exercises; nothing of it is global, so a process may hold several.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path

from twophase.checks import extra
from twophase.checks.exercise import Exercise
from twophase.checks.extra import Extra
from twophase.checks.manifest import HeldBack, Manifest, installed

ADDED = (
    Path(__file__).parent / "added"
)  # in what students get: the instructor's own public exercises

CHAPTERS = {
    "two_phases": 1,
    "arithmetic_intensity": 2,
    "kv_cache": 3,
    "latency_throughput": 4,
    "grouped_query_attention": 5,
    "latent_attention": 6,
    "local_attention": 7,
    "cross_layer_attention": 8,
    "beyond_attention": 9,
    "sharding": 10,
    "mixture_of_experts": 11,
    "quantization": 12,
    "pruning": 13,
    "speculative_decoding": 14,
    "continuous_batching": 15,
    "paging": 16,
    "serving_engine": 17,
}


class Catalog:
    """The course's exercises, those of folders, and held-back siblings in the places that they
    take.

    Raises ValueError, one sentence with the path, if a folder's topics or exercises clash with what
    is there already.
    """

    def __init__(
        self,
        checks: Sequence[Extra] = (),
        variants: Extra | None = None,
        manifest: Manifest | None = None,
    ) -> None:
        self.checks = tuple(checks)
        self.variants = variants
        self.manifest = manifest
        self._chapters = dict(CHAPTERS)
        self._added: dict[str, Extra] = {}  # exercise id -> the folder that has it
        for folder in self.checks:
            self._add(folder)
        if variants is not None:
            self._vary(variants)

    def _add(self, folder: Extra) -> None:
        for topic in folder.topics.values():
            init = folder.folder / topic.name / "__init__.py"
            if topic.replaces:
                raise ValueError(
                    f"{init} has REPLACES: held-back siblings go into a folder of their own,"
                    " --variants"
                )
            self._number(topic.name, topic.chapter, init)
            for exercise_id in [f"{topic.name}-{slug}" for slug in topic.order]:
                if exercise_id in self._own(topic.name) or exercise_id in self._added:
                    raise ValueError(
                        f"{init}: there is an exercise {exercise_id!r} already; choose another name"
                    )
                self._added[exercise_id] = folder

    def _number(self, topic: str, chapter: int | None, init: Path) -> None:
        """Give a topic of the folder its chapter, if it is new."""
        taken = {number: name for name, number in self._chapters.items()}
        if topic in self._chapters:
            if chapter not in (None, self._chapters[topic]):
                raise ValueError(
                    f"{init}: {topic} is chapter {self._chapters[topic]}; leave CHAPTER out"
                )
        elif chapter is None:
            raise ValueError(
                f"{init}: the course has no topic {topic!r}; a new one needs a number: CHAPTER = 21"
            )
        elif chapter in taken:
            raise ValueError(
                f"{init}: chapter {chapter} is {taken[chapter]}; choose another number"
            )
        else:
            self._chapters[topic] = chapter

    def _vary(self, folder: Extra) -> None:
        for topic in folder.topics.values():
            init = folder.folder / topic.name / "__init__.py"
            public = self.public_ids(topic.name)
            for slug in topic.order:
                place = f"{topic.name}-{topic.replaces.get(slug)}"
                if place not in public:
                    raise ValueError(
                        f"{init}: {slug!r} must take the place of an exercise of {topic.name}:"
                        f" REPLACES = {{{slug!r}: ...}} with one of"
                        f" {', '.join(i.partition('-')[2] for i in public)}"
                    )
                if f"{topic.name}-{slug}" in public:
                    raise ValueError(
                        f"{init}: there is an exercise '{topic.name}-{slug}' already; choose"
                        " another name"
                    )
        self._added |= dict.fromkeys(folder.ids(), folder)

    def folders(self) -> tuple[Extra, ...]:
        """The instructor's folders, the held-back one last."""
        return (*self.checks, self.variants) if self.variants else self.checks

    def topics(self) -> list[str]:
        """The topics that have exercises, in the order of the chapters."""
        new = {i.partition("-")[0] for i in self._added}
        found = [
            t
            for t in self._chapters
            if t in new or importlib.util.find_spec(f"twophase.checks.{t}") is not None
        ]
        return sorted(found, key=self._chapters.__getitem__)

    def names(self) -> list[str]:
        """All topics that have a chapter, with exercises or without."""
        return sorted(self._chapters, key=self._chapters.__getitem__)

    def stem(self, topic: str) -> str:
        """The file name that a topic has in every room, without its ending: `03_kv_cache`."""
        return f"{self._chapters[topic]:02d}_{topic}"

    def replaced(self) -> dict[str, str]:
        """Held-back exercise -> the public one whose place it takes, both by id."""
        topics = self.variants.topics.values() if self.variants else ()
        return {f"{t.name}-{a}": f"{t.name}-{b}" for t in topics for a, b in t.replaces.items()}

    def public_ids(self, topic: str) -> list[str]:
        """The ids of the exercises whose checks students have, the course's own first."""
        mine = (
            self._added
            if self.variants is None
            else {i: f for i, f in self._added.items() if f != self.variants}
        )
        return [*self._own(topic), *(i for i in mine if i.partition("-")[0] == topic)]

    def ids(self, topic: str) -> list[str]:
        """The ids of a topic's exercises, in teaching order: held-back siblings in the places of
        public ones."""
        stands_for = {public: held for held, public in self.replaced().items()}
        return [stands_for.get(i, i) for i in self.public_ids(topic)]

    @staticmethod
    def _own(topic: str) -> list[str]:
        if topic not in CHAPTERS or importlib.util.find_spec(f"twophase.checks.{topic}") is None:
            return []
        package = importlib.import_module(f"twophase.checks.{topic}")
        return [f"{topic}-{slug}" for slug in package.ORDER]

    def load(self, exercise_id: str) -> Exercise:
        """The exercise of this id. Raises ValueError, with the nearest known id, if there is
        none."""
        if exercise_id in self._added:
            return self._added[exercise_id].load(exercise_id)
        topic, _, slug = exercise_id.partition("-")
        if exercise_id not in self._own(topic):
            raise ValueError(self._unknown(exercise_id))
        exercise: Exercise = importlib.import_module(f"twophase.checks.{topic}.{slug}").EXERCISE
        if exercise.id != exercise_id:
            raise ValueError(
                f"the module of {exercise_id!r} defines {exercise.id!r}; an exercise's id is"
                " <topic>-<module>"
            )
        return exercise

    def _unknown(self, exercise_id: str) -> str:
        known = [i for t in self.topics() for i in self.listed_ids(t)]
        near = difflib.get_close_matches(exercise_id, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known ids: {', '.join(known)}"
        return f"there is no exercise {exercise_id!r}; {hint}"

    def load_topic(self, topic: str) -> list[Exercise]:
        """A topic's exercises that can be judged here, in teaching order."""
        return [self.load(i) for i in self.ids(topic)]

    def held_back(self, exercise_id: str) -> HeldBack | None:
        """What is known of an exercise that is judged after handing in, whose check is not here;
        None of any other."""
        return self.manifest.held_back.get(exercise_id) if self.manifest else None

    def listed_ids(self, topic: str) -> list[str]:
        """What the topic's notebook asks: in what students get, as its manifest says, held-back
        exercises included."""
        asked = self.manifest.exercises.get(topic) if self.manifest else None
        return self.ids(topic) if asked is None else list(asked)

    def listed(self, topic: str) -> list[Exercise | HeldBack]:
        """The exercises that the topic's notebook asks, in order."""
        return [self.held_back(i) or self.load(i) for i in self.listed_ids(topic)]


def _installed() -> Catalog:
    folders = sorted(p for p in ADDED.iterdir() if p.is_dir()) if ADDED.is_dir() else []
    return Catalog([extra.read(p) for p in folders], manifest=installed())


COURSE = _installed()
topics = COURSE.topics
stem = COURSE.stem
ids = COURSE.ids
load = COURSE.load
load_topic = COURSE.load_topic
listed = COURSE.listed
listed_ids = COURSE.listed_ids
held_back = COURSE.held_back
