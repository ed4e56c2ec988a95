"""What bench/README.md says of an H100 and an H200 is what was recorded of them."""

import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "bench"


def test_the_readme_of_the_timings_has_the_tables_that_the_recorded_runs_give(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    from card_tables import tables

    text = (BENCH / "README.md").read_text("utf8")
    assert [table for table in tables() if table not in text] == []
    assert sys.modules.pop("card_tables")
