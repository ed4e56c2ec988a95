"""The claims ledger: what five texts on inference say, recomputed line by line, each claim with a
verdict.

The claims are data (`claims/*.yml`, one file per text); `ledger` computes them with the formulas of
`twophase.theory`.
"""

from twophase.errata.ledger import Finding, findings, judge
from twophase.errata.page import agreement, controls, counts, describe, rows_of, severities
from twophase.errata.parsing import load
from twophase.errata.rows import Claim, Source

__all__ = [
    "Claim",
    "Finding",
    "Source",
    "agreement",
    "controls",
    "counts",
    "describe",
    "findings",
    "judge",
    "load",
    "rows_of",
    "severities",
]
