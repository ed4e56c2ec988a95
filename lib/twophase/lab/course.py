"""Where the course lies on this disk, and which of its notebooks we are in."""

from __future__ import annotations

import json
import os
from pathlib import Path

COURSE = (
    Path(__file__).resolve().parents[3]
)  # the folder that holds lib/, exercises/ and solutions/


def topic_here() -> str | None:
    """The topic of the notebook that this process runs, by its file name or by what was checked in
    it last."""
    from twophase.checks import registry
    from twophase.lab.checking import touched

    stems = {registry.stem(t): t for t in registry.topics()}
    named = Path(os.environ.get("JPY_SESSION_NAME", "")).stem  # set by Jupyter for each kernel
    if named in stems:
        return stems[named]
    return touched[-1].partition("-")[0] if touched else None


def author_source(exercise_id: str, course: Path = COURSE) -> str | None:
    """The solution cell of an exercise without its markers, or None if the model solutions are not
    here."""
    from twophase.checks import registry

    notebook = course / "solutions" / f"{registry.stem(exercise_id.partition('-')[0])}.ipynb"
    try:
        cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            if cell.get("metadata", {}).get("nbgrader", {}).get("grade_id") == exercise_id:
                lines = "".join(cell["source"]).splitlines()
                return "\n".join(
                    x
                    for x in lines
                    if "### BEGIN SOLUTION" not in x and "### END SOLUTION" not in x
                )
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    return None
