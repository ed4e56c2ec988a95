"""An nbgrader course as nbgrader reads it. Its gradebook changes as a whole or not at all."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

MISSING = (
    "nbgrader is not installed here: run this where the gradebook is, with the nbgrader that"
    " made it"
)
ALONE = "stop what else has it open (formgrader, another nbgrader command), and run this again"


@dataclass(frozen=True)
class NbCourse:
    """nbgrader's application with the course's configuration, and its view of the folders."""

    app: Any
    directory: Any

    def folder(self, step: str, student: str, assignment: str) -> Path:
        """The folder of one `submitted`, `autograded` or `feedback` assignment."""
        where = getattr(self.directory, f"{step}_directory")
        return Path(self.directory.format_path(where, student, assignment))

    @property
    def url(self) -> Any:
        """Where the gradebook is. A relative path of SQLite begins in the course's folder."""
        from sqlalchemy.engine import make_url

        try:
            url = make_url(self.directory.db_url)
        except Exception:
            raise ValueError(
                "CourseDirectory.db_url in the course's nbgrader_config.py is no database URL"
            ) from None
        if url.get_backend_name() != "sqlite" or not url.database or url.database == ":memory:":
            return url
        return url.set(database=str(Path(self.directory.root, url.database)))


def load_nbgrader_course(folder: Path) -> NbCourse:
    """A folder's course, as its nbgrader_config.py and the user's own say. Raises ValueError."""
    if not folder.is_dir():
        raise ValueError(
            f"there is no folder {folder}; give the course's folder, where gradebook.db is, to"
            " --course-dir"
        )
    app = _application()
    try:
        app.initialize([], root=str(folder.resolve()))
    except (Exception, SystemExit) as e:
        raise ValueError(
            f"the nbgrader configuration of {folder} cannot be loaded ({type(e).__name__}: {e});"
            " correct it first"
        ) from None
    return NbCourse(app, app.coursedir)


def _application() -> Any:
    """nbgrader's application, made to say what is wrong with a configuration, not to ignore it."""
    try:
        from nbgrader.apps.baseapp import NbGrader
    except ImportError:
        raise ValueError(MISSING) from None

    class Reader(NbGrader):  # type: ignore[misc]
        name = "nbgrader"
        load_cwd_config = False  # the folder that is named counts, not the one that we stand in
        raise_config_file_errors = True
        log_level = logging.CRITICAL

        def migrate_config(self) -> None:
            """Reading a course changes nothing in anybody's home."""

    return Reader()


@contextlib.contextmanager
def transaction(course: NbCourse) -> Iterator[Any]:
    """The course's nbgrader.api.Gradebook. All that is done with it is in the database at the end;
    after an exception nothing is. Raises ValueError if it is absent, locked or of another version.
    """
    from nbgrader.api import Gradebook, InvalidEntry
    from sqlalchemy.exc import OperationalError, SQLAlchemyError

    url = course.url
    shown = url.database if url.get_backend_name() == "sqlite" else url.render_as_string()
    try:
        _require_gradebook(url, shown)
        whole = url.render_as_string(hide_password=False)
        # without a course id the constructor writes nothing
        with Gradebook(whole, course_id="") as book, _as_one(book):
            yield book
    except (OperationalError, InvalidEntry) as e:
        if "locked" in str(e):
            said = f"the gradebook {shown} is locked: {ALONE}; nothing was changed"
            raise ValueError(said) from None
        raise ValueError(
            f"the gradebook {shown} cannot be written ({_first_line(e)}); nothing was changed"
        ) from None
    except SQLAlchemyError as e:
        raise ValueError(
            f"{shown} is no gradebook that can be read ({_first_line(e)}); nothing was changed"
        ) from None


@contextlib.contextmanager
def _as_one(book: Any) -> Iterator[None]:
    """The gradebook commits after each step; in here all that goes into one transaction."""
    from sqlalchemy.orm import scoped_session, sessionmaker

    with book.engine.connect() as connection, connection.begin():
        if book.engine.dialect.name == "sqlite":
            # nobody writes between our reading and our writing
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        book.db.remove()
        sessions = sessionmaker(bind=connection, join_transaction_mode="rollback_only")
        book.db = scoped_session(sessions)
        try:
            yield
            book.db.flush()
        finally:
            book.db.remove()


def _require_gradebook(url: Any, shown: str) -> None:
    """Raises ValueError if there is no gradebook of the installed nbgrader's. Changes nothing."""
    from alembic.script import ScriptDirectory
    from nbgrader import dbutil
    from sqlalchemy import create_engine, inspect, text

    if url.get_backend_name() == "sqlite" and not Path(url.database or "").is_file():
        raise ValueError(
            f"there is no gradebook {shown}; `nbgrader generate_assignment` makes it, and"
            " --course-dir says where it is"
        )
    engine = create_engine(url)
    try:
        with engine.connect() as connection:
            if not inspect(connection).has_table("alembic_version"):
                raise ValueError(
                    f"{shown} is a database, and no gradebook of nbgrader's; nothing was changed"
                )
            found = connection.execute(text("SELECT version_num FROM alembic_version")).scalar()
    finally:
        engine.dispose()
    expected = ScriptDirectory(dbutil.ALEMBIC_DIR).get_current_head()
    if found != expected:
        raise ValueError(
            f"the gradebook {shown} is of another version of nbgrader (schema {found}; nbgrader"
            f" {version('nbgrader')} has {expected}): back it up and run `nbgrader db upgrade`, or"
            " use the nbgrader that made it; nothing was changed"
        )


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
