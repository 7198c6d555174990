"""The one family of errors a person is meant to read, and nothing else.

Only the standard library may be imported here; printing belongs to `tracekit.cli`.
"""

from __future__ import annotations


class TracekitError(Exception):
    """An input that cannot be used: what was wrong with the value seen, and what to do about it.

    Args:
        problem: one line that says what was wrong, with the value seen in it.
        remedy: one line that says what the person can do next.
    """

    exit_code = 1

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(problem)
        self.problem = problem
        self.remedy = remedy


class SnapshotError(TracekitError):
    """The bytes given are not a snapshot that can be read, or may not be read."""


class DatasetError(TracekitError):
    """The folder given is not a dataset of this version, or cannot be written."""


class QueryError(TracekitError):
    """A SQL query that failed, or that asked for what it may not have."""


class RulesError(TracekitError):
    """A file of bucket rules with a row that cannot be used."""


class ChartError(TracekitError):
    """A picture that cannot be drawn: there is no such chart, or the dataset has nothing for it."""


class OutputError(TracekitError):
    """A file that cannot be written, or that is in the way."""


class RunFolderError(TracekitError):
    """A run folder of the recorder that lacks its snapshot, or holds a file that cannot be used."""
