"""What is clicked: every order of deeds leads where the page's own code leads, and the script finds
there what would be drawn."""

import json
import re
from itertools import product
from pathlib import Path

import pytest

from twophase.drawing import Clicked, Moment, Tiles, reach

DEEDS = {"add": lambda n: n + 1, "double": lambda n: 2 * n, "halve": lambda n: n // 2}
KEY = {"stored": "a number", "new": "a large one"}


def after(n: int) -> list[tuple[str, int]]:
    """What can be done with a number; an odd one is not halved."""
    return [(deed, f(n)) for deed, f in DEEDS.items() if deed != "halve" or n % 2 == 0]


def cells(n: int) -> list[tuple[str, str]]:
    return [(str(n % 10), "new" if n > 5 else "stored"), (str(n // 10), "stored")]


def clicked(depth: int = 3, **options: object) -> Clicked:
    numbers, thens = reach(3, after, str, depth)
    moments = [
        Moment(cells(n), f"It is {n} <now>.", t) for n, t in zip(numbers, thens, strict=True)
    ]
    given = {"deeds": [["add", "double"], ["halve"]], "story": ["add", "halve"], "key": KEY}
    told = given | {"alt": "A number in two digits."} | options
    return Clicked("Numbers", lambda cells: Tiles([cells], side=30), moments, **told)


def test_every_order_of_deeds_leads_where_they_lead_one_after_the_other() -> None:
    numbers, thens = reach(3, after, str, 4)
    assert len(set(numbers)) == len(numbers)
    met = set()
    for order in product(DEEDS, repeat=4):
        n, at = 3, 0
        for deed in order:
            met.add(at)
            assert numbers[at] == n
            if deed not in dict(after(n)):
                assert deed not in thens[at]
                break
            n, at = DEEDS[deed](n), thens[at][deed]
        met.add(at)
        assert numbers[at] == n
    assert met == set(range(len(numbers)))
    assert any(not then for then in thens)  # those at the end


def test_the_script_finds_of_every_moment_what_is_drawn_of_it() -> None:
    drawing = clicked()
    html = drawing._repr_html_()
    data = json.loads(re.search(r'<script type="application/json">(.*)</script>', html)[1])
    states = ["stored", "new"]
    for i, moment in enumerate(drawing.moments):
        faces = [data["faces"][data["letters"].index(letter)] for letter in data["cells"][i]]
        assert [text for _, text in faces] == [text for text, _ in moment.cells]
        looks = [data["layouts"]["tp-any"]["looks"][state] for state, _ in faces]
        assert [look.count("@") for look in looks] == [1] * 2  # where the text comes
        assert all(">@</text>" in look for look in looks)
        filled = ["22%" in look for look in looks]  # stored is pale, new is not
        assert filled == [state == states[0] for _, state in moment.cells]
        assert data["words"][data["says"][i]] == moment.says
        deeds = [deed for row in data["deeds"] for deed in row]
        then = dict(zip(deeds, data["then"][i], strict=False))
        assert {deed: to for deed, to in then.items() if to >= 0} == moment.then
    script = (Path(__file__).parents[1] / "book" / "_static" / "clicked.js").read_text("utf8")
    assert '.replace("@", () => text)' in script
    assert len(data["layouts"]["tp-any"]["places"]) == 2
    assert data["still"].count('<g class="tp-cells"></g>') == 1


def test_paper_shows_the_story_a_frame_a_deed() -> None:
    html = clicked()._repr_html_()
    said = re.findall(r"</span> (It is \d+)", html)
    assert said == ["It is 3", "It is 4", "It is 2"]
    assert "<now>" not in html.split("<script")[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"story": ["halve"]}, "the story's deed 'halve' cannot be done then"),
        ({"deeds": [["add", "double"]]}, "'halve' is none of the deeds"),
        ({"key": {"stored": "a number"}}, "in a state that is named"),
        ({"alt": "numbers"}, "alt says what the drawing shows"),
    ],
)
def test_what_cannot_be_clicked_is_said(options: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        clicked(**options)


def test_a_drawing_whose_boxes_are_others_than_its_cells_is_refused() -> None:
    drawing = clicked()
    turned = Clicked(
        "Numbers", lambda cells: Tiles([list(cells)[::-1]], side=30),
        [Moment([("1", "new"), ("2", "stored")], "One.", {})],
        deeds=[["add"]], story=[], alt=drawing.alt, key=KEY,
    )  # fmt: skip
    with pytest.raises(ValueError, match="draw makes a box for each cell, in their order"):
        turned._repr_html_()
