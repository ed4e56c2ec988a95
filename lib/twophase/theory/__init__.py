"""Formulas as plain functions: standard library only, SI units in the names, numbers, arrays and
symbols alike."""
