"""The garbage collector, held still while millions of plain objects are alive; nothing else.

Only the standard library may be imported here.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def paused() -> Generator[None]:
    """Keep the collector from walking every live object again and again while more are made.

    A snapshot holds no cycles, so nothing is kept by this; reference counts free what is let go.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            gc.enable()
