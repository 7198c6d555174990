"""The words that messages about a bad file share, and how a value from it is put into one line; nothing is judged."""

from __future__ import annotations

RECORD = "give the file that torch.cuda.memory._dump_snapshot wrote"
DUMP_AGAIN = "copy it again, or record again: the dump may have been killed while writing"
DATA_ONLY = "a snapshot holds only dicts, lists, tuples, text and numbers"

_MOST_SHOWN = 100


def shown(text: str) -> str:
    """Text from a file made safe to print: no control characters, no line breaks, not long."""
    printable = "".join(character if character.isprintable() else "?" for character in text[: _MOST_SHOWN + 1])
    return printable if len(printable) <= _MOST_SHOWN else printable[:_MOST_SHOWN] + "..."


def a(value: object) -> str:
    """A value's type with its article."""
    return "None" if value is None else an(type(value))


def an(kind: type[object]) -> str:
    """A type's name with its article."""
    return f"{'an' if kind.__name__[0] in 'aeiou' else 'a'} {kind.__name__}"
