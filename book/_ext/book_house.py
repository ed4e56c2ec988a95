"""The book's own Sphinx extension: loads the small ones beside it (README.md says how each is
written in a page)."""

from sphinx.application import Sphinx

PARTS = [
    "book_offline",
    "book_math",
    "book_question",
    "book_sources_say",
    "book_numbers",
    "book_chapter",
    "book_exercises",
    "book_play",
    "book_figures",
    "book_tables",
    "book_words",
    "book_glossary",
    "book_api",
    "book_icons",
    "book_search",
    "book_trim",  # last: it reads the pages as they are
]


def setup(app: Sphinx) -> dict[str, bool]:
    # Jupyter Book sets it even where sphinx_comments, which reads it, is not loaded.
    app.add_config_value("comments_config", {}, "html")
    for part in PARTS:
        app.setup_extension(part)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
