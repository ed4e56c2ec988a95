"""The API reference: one page per room, its modules found by walking the package, docstrings taken
as plain text.

A page says ``<!-- modules: twophase.theory -->``; every module below becomes a section. The house's
docstrings are plain sentences with shapes such as ``[B, T, N, H]`` and products such as ``2 * B``;
they are not reStructuredText, so what would be markup there is escaped, indented blocks are shown
as they stand, and `` `code` `` is code. Sphinx puts every word and every space of a signature into
a box of its own, a quarter of such a page; they go.
"""

import importlib
import pkgutil
import re
from enum import Enum
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from twophase.checks import registry

MARKER = re.compile(r"<!-- modules: (?P<package>[\w.]+) -->")
CODE = re.compile(r"``?(?P<code>[^`\n]+)``?|(?<![\w*])\*(?P<stressed>[a-z]+)\*(?![\w*])")
ON_THIS_MACHINE = re.compile(
    r"<(?:[^<>]|<[^<>]*>)*>|\b(?:Posix|Windows)Path\([^()]*\)|'/[^'/]+/[^']*'"
)
LISTED = re.compile(
    r'(<a class="reference internal nav-link"[^>]*><code[^>]*>)twophase\.\w+\.(?=\w)'
)
HEADING = re.compile(r"(?<=<h2><code class=\")([^\"]*\">)([\w.]+)")
BOXED = re.compile(r'<span class="(?:pre|w)">([^<]*)</span>')


def public_modules(package: str) -> list[str]:
    """The package, if it says something, and its public modules, sorted."""
    root = importlib.import_module(package)
    paths = getattr(root, "__path__", [])
    names = [info.name for info in pkgutil.walk_packages(paths, package + ".")]
    names = [name for name in names if not any(part.startswith("_") for part in name.split("."))]
    says = [package] if root.__doc__ else []  # else a heading over nothing
    return says + sorted(name for name in names if not holds_answers(name))


def holds_answers(name: str) -> bool:
    """Whether the module is a topic's exercises, or one of them: their references and hints are for
    later."""
    return name.startswith("twophase.checks.") and name.split(".")[2] in registry.CHAPTERS


def expand(app: Sphinx, docname: str, source: list[str]) -> None:
    def sections(match: re.Match[str]) -> str:
        parts = []
        for name in public_modules(match["package"]):
            parts.append(
                f"## `{name}`\n\n```{{eval-rst}}\n.. automodule:: {name}\n   :members:\n  "
                " :ignore-module-all:\n```\n"
            )
        return "\n".join(parts)

    source[0] = MARKER.sub(sections, source[0])


def plain(line: str) -> str:
    """One line of plain text as reStructuredText that prints the same, with `code` as code and
    *one* word stressed."""
    pieces = []
    last = 0
    for match in CODE.finditer(line):
        pieces.append(_escape(line[last : match.start()]))
        marked = f"``{match['code'].strip()}``" if match["code"] else match[0]
        before = line[match.start() - 1] if match.start() else " "
        after = line[match.end()] if match.end() < len(line) else " "
        pieces.append(
            ("" if before.isspace() else "\\ ") + marked + ("" if after.isspace() else "\\ ")
        )
        last = match.end()
    return "".join([*pieces, _escape(line[last:])])


def _escape(text: str) -> str:
    return re.sub(r"([\\*_|`<>:])", r"\\\1", text)


def closed(lines: list[str]) -> list[str]:
    """The lines, each joined with the next of its paragraph while its `code` goes on there."""
    made: list[str] = []
    for line in lines:
        if made and made[-1].count("`") % 2 and line.strip():
            made[-1] = f"{made[-1]} {line.strip()}"
        else:
            made.append(line)
    return made


def plain_docstring(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Paragraphs stay paragraphs; indented blocks and tables become literal blocks; ``- item``
    lists stay lists."""
    made: list[str] = []
    literal = False
    for line in closed(lines):
        indented = line.startswith("    ") or (literal and line.startswith(" "))
        if indented and not literal:
            made += ["", "::", ""] if not _in_list(made) else []
            literal = not _in_list(made)
        elif literal and line.strip() and not line.startswith(" "):
            made.append("")
            literal = False
        if literal:
            made.append(line)
        elif line.startswith(("- ", "* ")):
            if made and made[-1].strip() and not made[-1].startswith(("- ", "  ")):
                made.append("")
            made.append("- " + plain(line[2:]))
        elif line.startswith(" ") and _in_list(made):
            made.append("  " + plain(line.strip()))
        else:
            if _in_list(made) and line.strip():
                made.append("")
            made.append(plain(line.lstrip()))
    lines[:] = [*made, ""]


def readable_defaults(
    app: Sphinx,
    what: str,
    name: str,
    obj: object,
    options: object,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Defaults that print as ``<factory>`` or ``<object at 0x…>`` would keep Sphinx from reading
    the signature; one that is a path says where this machine keeps the course. A protocol is not
    called, and the call of an enumeration is Python's."""
    if isinstance(obj, type) and (getattr(obj, "_is_protocol", False) or issubclass(obj, Enum)):
        return "", returns
    return (ON_THIS_MACHINE.sub("...", signature) if signature else signature), returns


def without_aliases(
    app: Sphinx, what: str, name: str, obj: object, skip: bool, options: object
) -> bool | None:
    """The fields of a named tuple stand in its signature; Python's word for each says no more."""
    return True if (obj.__doc__ or "").startswith("Alias for field number") else None


def unboxed(html: str) -> str:
    """The page with its words and spaces in fewer boxes; not a letter of its text changes, but that
    its list of contents calls each module by what it has of its own. Where a heading does not fit
    into a line, the next one begins after a dot."""
    page = LISTED.sub(r"\1", BOXED.sub(r"\1", html))
    return HEADING.sub(lambda found: found[1] + found[2].replace(".", ".<wbr>"), page)


def lighten(app: Sphinx, failed: Exception | None) -> None:
    if failed is None and app.builder.format == "html":
        for page in Path(app.outdir, "book", "api").glob("*.html"):
            page.write_text(unboxed(page.read_text("utf8")), "utf8")


def _in_list(made: list[str]) -> bool:
    return (
        bool(made)
        and made[-1].startswith(("- ", "  "))
        and bool(made[-1].strip())
        and not made[-1].startswith("    ")
    )


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("source-read", expand)
    app.connect("autodoc-process-docstring", plain_docstring)
    app.connect("autodoc-process-signature", readable_defaults)
    app.connect("autodoc-skip-member", without_aliases)
    app.connect("build-finished", lighten)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
