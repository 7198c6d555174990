"""The interactive page of an estimate: choices on the left, the nine moments and the ledger on the right.

The page knows no formula. What it gets are the tensors that the Python functions made, as products of sizes; it
multiplies and adds.
"""

from tracekit.estimate.page.page import html

__all__ = ["html"]
