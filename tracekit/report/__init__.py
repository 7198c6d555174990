"""The page that explains a recording: one file, made from the account, the charts and the stacks of what they show."""

from __future__ import annotations

from tracekit.report.page import html, name_of, write

__all__ = ["html", "name_of", "write"]
