"""Symbol, meter, stopwatch: this room is the meter and the stopwatch.

`machine()` is this machine as a `Hardware`, `Meter` counts FLOPs and bytes while code runs, `race`
and `stopwatch` take medians, `Table`, `compare` and `plots` show what was predicted beside what was
seen.
"""

from .compare import Comparison, compare
from .formulas import UnknownOperator, register
from .machine import Probe, calibrate, machine, probe
from .meter import Meter
from .regions import Count, Region
from .reports import counted, record, watch
from .stopwatch import Race, Timing, race, stopwatch
from .tables import Table, binary, si
from .traffic import Part, tensor_bytes

__all__ = [
    "Comparison",
    "Count",
    "Meter",
    "Part",
    "Probe",
    "Race",
    "Region",
    "Table",
    "Timing",
    "UnknownOperator",
    "binary",
    "calibrate",
    "compare",
    "counted",
    "machine",
    "probe",
    "race",
    "record",
    "register",
    "si",
    "stopwatch",
    "tensor_bytes",
    "watch",
]
