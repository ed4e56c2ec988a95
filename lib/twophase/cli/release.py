"""`twophase release`: the folder that students get, tried before it is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from twophase.cli import grading_options as options
from twophase.cli.interrupt_while_loading import loading
from twophase.cli.progress_bars import PatientBar, patience
from twophase.grading.course import secret as secrets
from twophase.grading.errors import writing
from twophase.grading.release.release import Source, course_root

if TYPE_CHECKING:
    from twophase.grading.release.handout import Handout

DONE, NOT_AS_IT_SHOULD_BE, OUR_FAULT = 0, 1, 3
MOST_SENTENCES = 20
COLUMNS = (
    TextColumn("grading the untouched notebooks and the model solutions"),
    BarColumn(),
    MofNCompleteColumn(),
    TimeRemainingColumn(),
)


def release(
    out: Annotated[Path | None, typer.Option(help="The folder to make.")] = None,
    checks: options.Checks = None,
    variants: options.Variants = None,
    topics: Annotated[
        str, typer.Option(help="Only these, such as kv_cache,two_phases. Default: all.")
    ] = "",
    secret: Annotated[
        Path | None, typer.Option(help="The course's secret: no file of the release may have it.")
    ] = None,
    new_secret: Annotated[
        Path | None, typer.Option(help="Write a new secret to this file, and nothing else.")
    ] = None,
    replace: Annotated[bool, typer.Option(help="Put it in the place of another release.")] = False,
    prove: Annotated[
        bool,
        typer.Option(
            help="Grade the untouched notebooks and the model solutions against it first."
        ),
    ] = True,
) -> None:
    """Make what students get: notebooks, package, a README. Nothing hidden is in it, and nothing is
    written before that is proved.

    Public exercises' checks go out with their references, so that check cells answer at once. What
    must stay unknown belongs into --variants: such a sibling is judged after handing in only.

    Exit code: 0 made, or there already; 1 a check or a notebook is not as it should be, and nothing
    was written; 2 bad usage, or a mistake in a folder; 3 the grader failed, or cannot write.

    Example: twophase release --out release/ --variants held-back/
    """
    if new_secret is not None:
        secrets.create(new_secret)
        typer.echo(
            f"{new_secret}: keep it, and give it to nobody; grade with --secret {new_secret}"
        )
        return
    if out is None:
        raise ValueError("say where the release goes: --out release/")
    raise typer.Exit(
        _make(out, Source(None, tuple(checks or ()), variants), topics, secret, replace, prove)
    )


def _make(
    out: Path, source: Source, topics: str, secret: Path | None, replace: bool, prove: bool
) -> int:
    with loading():
        from twophase.grading.release import handout, placing
        from twophase.grading.run.release_rehearsal import prove_checks
    root, console = course_root(), Console()
    options.require_folder(out.parent)
    placing.require_place(out, root, source.private())
    hidden = secrets.read_secret(secret) if secret else b""
    source.validate()
    with patience("proving the checks of your folders"):
        wrong = list(prove_checks(source.catalog().folders()))
    if _refused(wrong, console):
        return NOT_AS_IT_SHOULD_BE
    made = handout.make(root, source, _topics(source, topics))
    if placing.require_free(out, made, replace):
        console.print(_table(source, made))
        console.print(Text(f"{out}: this release is there already"))
        return DONE
    with placing.written(out, made) as folder:
        if _refused(_leaks(folder, source, root, hidden), console):
            return NOT_AS_IT_SHOULD_BE
        written = Source(folder, source.checks, source.variants)
        if prove and (code := _rehearsed(written, made, console)):
            return code
        with writing(out):
            placing.move(folder, out)
    console.print(_table(source, made))
    size = sum(map(len, made.files.values()))
    console.print(Text(f"{out}: {len(made.files)} files, {size / 1e6:.1f} MB"))
    return DONE


def _topics(source: Source, wanted: str) -> list[str]:
    """The topics asked for, in the order of the chapters. Raises ValueError for another one."""
    catalog = source.catalog()
    names = {n: t for t in catalog.topics() for n in (t, catalog.stem(t))}
    chosen = [w.strip() for w in wanted.split(",") if w.strip()] or list(names)
    for name in chosen:
        if name not in names:
            raise ValueError(
                f"there is no topic {name!r} with exercises; there are"
                f" {', '.join(catalog.topics())}"
            )
    return [t for t in catalog.topics() if t in {names[n] for n in chosen}]


def _leaks(folder: Path, source: Source, root: Path, secret: bytes) -> Iterator[str]:
    """A sentence for everything in the written release that must not be there."""
    from twophase.grading.release import leaks

    files = {
        p.relative_to(folder).as_posix(): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file()
    }
    notebooks = [*root.glob("solutions/*.ipynb")]
    notebooks += [
        p for f in source.catalog().folders() for p in f.notebook("*").parent.glob("*.ipynb")
    ]
    yield from leaks.found(files, source.catalog(), notebooks, secret)


def _rehearsed(source: Source, made: Handout, console: Console) -> int:
    """The exit code: DONE if untouched notebooks score nothing and model solutions everything."""
    from twophase.grading.errors import GraderFault
    from twophase.grading.files.scratch import scratch
    from twophase.grading.run.release_rehearsal import rehearse
    from twophase.grading.sandbox.zygote_handle import make_zygote

    topics = len(made.solutions)
    try:
        with scratch(), make_zygote() as zygote, PatientBar(*COLUMNS) as bar:
            wrong = list(rehearse(source, made.solutions, zygote, lambda n: bar.show(n, topics)))
    except GraderFault as e:
        console.print(Text(f"the grader failed: {e}; nothing was written", style="red"))
        return OUR_FAULT
    return NOT_AS_IT_SHOULD_BE if _refused(wrong, console) else DONE


def _refused(sentences: Iterable[str], console: Console) -> bool:
    """Print what is wrong. Returns whether anything is."""
    found = list(sentences)
    for sentence in found[:MOST_SENTENCES]:
        console.print(Text(sentence, style="red"))
    if len(found) > MOST_SENTENCES:
        console.print(Text(f"... and {len(found) - MOST_SENTENCES} more", style="red"))
    if found:
        console.print("Nothing was written.")
    return bool(found)


def _table(source: Source, made: Handout) -> Table:
    table = Table("notebook", "exercises", "points", "held back")
    catalog = source.catalog()
    for topic, ids in made.manifest.exercises.items():
        exercises = [catalog.load(i) for i in ids]
        held = [made.manifest.held_back[i] for i in ids if i in made.manifest.held_back]
        shown = ", ".join(f"{h.id} for {h.replaces.partition('-')[2]}" for h in held)
        points = f"{sum(e.points for e in exercises):g}"
        table.add_row(f"{catalog.stem(topic)}.ipynb", str(len(ids)), points, Text(shown))
    return table
