"""Wrong answers that every exercise must reject, made from its reference."""

from twophase.checks.judge import Bench


def standing(bench: Bench) -> str:
    return ""
