"""The generated stream at a point as the raw tables of a recording, so that whatever reads one can read it.

Events borrow stacks and times from the recording whose operations they are.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import pyarrow as pa

from tracekit import what_if
from tracekit.allocator.whatif import run
from tracekit.collector import paused
from tracekit.fit.answer import Conditions, likeliest
from tracekit.fit.model import Model, told
from tracekit.fit.rule import Point


def tables_at(model: Model, point: Point, conditions: Conditions) -> dict[str, pa.Table]:
    """The raw tables that a recording at a point would have, under the likeliest layout.

    Where it runs out of memory, the events end there, as those of a recording would.
    """
    program, source = model.stream(point)
    is_recorded = model.recorded_at(point) is not None
    keeps_opening = None if is_recorded else model.keeps_opening
    layout = likeliest(program, is_recorded=is_recorded)
    with paused():
        outcome = run(program, conditions.settings, conditions.reservable, layout, keeps_opening)
    return what_if.tables_of(source.recording, [what_if.Trial(source.device, told(point), outcome.settings, outcome)])
