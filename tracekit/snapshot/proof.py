"""The proof that a pickle, run as the program it is, can do no harm; nothing is loaded here.

Python's unpickling machine imports what the program names, and gives a memo as many slots as the program says, which
twenty bytes can make a hundred gigabytes. So every instruction is looked at before one is run:

- it builds plain data, or the machine hands it to `find_class` or `persistent_load`, which refuse;
- no length leads out of the file, and no instruction out of its frame, so that machine and proof never lose step;
- no memo slot lies far beyond the number of objects stored;
- where the program could make a dict's key that is slow to hash, or many that collide, it is said so, and the keys are
  watched while it runs. torch's own files never do that.

One instruction is an opcode byte and its operand. Nearly all of a snapshot is instructions of fixed size, and a regular
expression walks those at the speed of C. What has a length of its own, ends the program or is unusual goes to `_Proof`.
"""

from __future__ import annotations

import pickle
import pickletools
import re
from array import array
from collections.abc import Callable

from tracekit.errors import SnapshotError
from tracekit.snapshot.words import DATA_ONLY, DUMP_AGAIN

# Each alternative is one or more whole instructions:
#   h BINGET, j LONG_BINGET: by far the most, the names of keys and the shared frames
#   \x94 MEMOIZE, } EMPTY_DICT, ] EMPTY_LIST, ) EMPTY_TUPLE, ( MARK, u SETITEMS, s SETITEM, e APPENDS, a APPEND, N NONE,
#   \x88 NEWTRUE, \x89 NEWFALSE: no operand
#   \x8a LONG1 of fewer than 61 bits: hashed to itself, so that no more than a few can collide in a dict
#   K BININT1, M BININT2, two of them perhaps made a pair by \x86 TUPLE2: a pool's id, and cheap to hash; J BININT
#   \x8c SHORT_BINUNICODE of the usual short lengths, G BINFLOAT, q BINPUT
#   r LONG_BINPUT below slot 65,536: a megabyte at most
_SHORT_TEXTS = "|".join(rf"\x{length:02x}.{{{length}}}+" for length in (3, *range(1, 33)))
_INSTRUCTIONS = rf"""
      h.(?:h.)*+(?:j.{{4}}+)*+
    | j.{{4}}+(?:j.{{4}}+)*+
    | [\x94}}\])(useaN\x88\x89]++
    | \x8a(?:\x06.{{6}}+|\x07.{{7}}+|\x05.{{5}}+|\x08.{{7}}+[\x00-\x0f\xf0-\xff])
    | K.(?:K.\x86|M..\x86|)
    | M..(?:K.\x86|M..\x86|)
    | J.{{4}}+
    | \x8c(?:\x00|{_SHORT_TEXTS})
    | G.{{8}}+
    | q.
    | r..\x00\x00
"""
_BACKTRACKING = re.sub(r"([*+?}])\+", r"\1", _INSTRUCTIONS)

# Python's engine keeps a state for each round of a repetition, so the rounds are bounded. A repetition with a further +
# never goes back, which is of no use here, since no instruction is the beginning of another. Before Python 3.11.5 it
# also forgets to take back a round that failed half-way, and the plain repetition must do.
_KEEPS_A_FAILED_ROUND = re.fullmatch(rb"(?:ab?c)++", b"aca") is not None
_ROUNDS = f"(?:{_BACKTRACKING}){{1,4000}}" if _KEEPS_A_FAILED_ROUND else f"(?:{_INSTRUCTIONS}){{1,4000}}+"
_run = re.compile(_ROUNDS.encode(), re.DOTALL | re.VERBOSE).match
_line = re.compile(rb"[^\n]*\n").match

# Arrow's engine is an automaton and three times as fast, but says only yes or no; it is asked about whole frames.
_PLAIN_FRAME = r"\A(?s:\x95.{8}(?:" + re.sub(r"\s", "", _BACKTRACKING) + r")*)\z"
_WORTH_ASKING = 1024 * 1024

_SLOTS_AT_FIRST = 65_536
_MOST_WIDE_INTS = 10_000
"""So many integers, all chosen to collide, still take well under a second to put into a dict."""

_MOST_NUMBER_BYTES = 1024
"""Python prints a number of so many bytes; of more than 4,300 digits it does not."""

_KNOWN = b"hj\x94}])(useaN\x88\x89\x8aKMJ\x8cGqr"
_UNWANTED = {
    **dict.fromkeys(pickle.SHORT_BINBYTES + pickle.BINBYTES + pickle.BINBYTES8 + pickle.BYTEARRAY8, "bytes"),
    **dict.fromkeys(pickle.EMPTY_SET + pickle.ADDITEMS + pickle.FROZENSET, "a set"),
    **dict.fromkeys(pickle.NEXT_BUFFER + pickle.READONLY_BUFFER, "a buffer kept outside of it"),
    **dict.fromkeys(pickle.EXT1 + pickle.EXT2 + pickle.EXT4, "an object of the extension registry"),
    **dict.fromkeys(pickle.STRING + pickle.BINSTRING + pickle.SHORT_BINSTRING, "text of Python 2"),
}


def prove(data: memoryview) -> bool:
    """Walk every instruction up to STOP, or up to the first that the machine itself refuses.

    Returns:
        Whether the keys of dicts must be watched while it runs.

    Raises:
        SnapshotError: where a machine that runs the program could do anything but build plain data in due bounds.
    """
    return _Proof(data).walk()


class _Proof:
    """A walk over the instructions of one pickle."""

    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.end = self.frame_end = len(data)
        self.at = 0
        self.is_framed = False
        self.is_over = False
        self.needs_watching = False
        self.slots = _SLOTS_AT_FIRST
        self.wide_ints = 0
        self.plain_frames: set[int] = set()

    def walk(self) -> bool:
        self.protocol()
        self.plain_frames = _plain_frames(self.data, self.at)
        while not self.is_over:
            run = _run(self.data, self.at, self.frame_end)
            if run:
                self.at = run.end()
            if self.at < self.frame_end:
                opcode = self.data[self.at]
                if step := _STEPS.get(opcode):
                    step(self)
                elif opcode not in _KNOWN:
                    raise self.unwanted(opcode)
                elif not run:  # otherwise it may only have been one round too many
                    raise self.too_long(self.end + 1 if self.frame_end == self.end else self.end)
            elif self.frame_end < self.end:
                self.frame_end, self.is_framed = self.end, False  # what follows stands in another frame, or in none
            else:
                raise SnapshotError(f"is cut off: its {self.end:,} bytes hold no end of the pickle", DUMP_AGAIN)
        return self.needs_watching

    def protocol(self) -> None:
        if self.data[0] != pickle.PROTO[0]:
            return
        if self.end > 1 and self.data[1] > pickle.HIGHEST_PROTOCOL:
            raise SnapshotError(
                f"is a pickle of protocol {self.data[1]}, and {pickle.HIGHEST_PROTOCOL} is the newest known",
                f"write it again with pickle.dump(..., protocol={pickle.HIGHEST_PROTOCOL})",
            )
        self.at = 2

    # ------------------------------------------------------------ steps: one instruction each

    def number(self, size: int) -> int:
        return int.from_bytes(self.data[self.at + 1 : self.at + 1 + size], "little")

    def go_to(self, target: int) -> None:
        if target > self.frame_end:
            raise self.too_long(target)
        self.at = target

    def sized(self, size: int) -> int:
        """Step over an operand that follows its own length, a number of `size` bytes."""
        length = self.number(size)
        self.go_to(self.at + 1 + size + length)
        return length

    def long(self, size: int) -> None:
        length = self.sized(size)
        self.refuse_big(length)
        self.wide_ints += length >= 8
        self.needs_watching |= self.wide_ints > _MOST_WIDE_INTS

    def refuse_big(self, length: int) -> None:
        if length > _MOST_NUMBER_BYTES:
            raise SnapshotError(f"holds a number of {length:,} bytes; a snapshot's are small", "correct what wrote it")

    def frame(self) -> None:
        if self.is_framed:
            raise SnapshotError(f"is a damaged pickle: at byte {self.at:,}, a frame begins in a frame", DUMP_AGAIN)
        begin, content = self.at, self.at + 9
        self.go_to(content + self.number(8))
        self.frame_end, self.is_framed = self.at, True
        if begin not in self.plain_frames:
            self.at = content

    def stop(self) -> None:
        left = self.end - self.at - 1
        if left and (left > 3 or any(self.data[self.at + 1 :])):  # a page that embeds a snapshot pads it with zeros
            raise SnapshotError(
                f"goes on for {left:,} bytes after the end of its pickle",
                "keep the first pickle only: two dumps may have been written to one file",
            )
        self.is_over = True

    def put(self) -> None:
        slot = self.number(4)
        self.go_to(self.at + 5)
        self.use_slot(slot)

    def put_line(self) -> None:
        line = self.text_line()
        self.use_slot(int(line) if re.fullmatch(rb"\d{1,18}\n", line) else 1 << 64)

    def use_slot(self, slot: int) -> None:
        if slot > self.slots:
            raise SnapshotError(
                f"is damaged, or made to exhaust memory: it asks for memo slot {slot:,} after {self.at:,} bytes",
                DUMP_AGAIN,
            )
        self.slots += 1

    def number_line(self) -> None:
        self.refuse_big(len(self.text_line()))

    def text_line(self) -> bytes:
        """Step over an operand of protocol 0, which ends with its line."""
        line = _line(self.data, self.at + 1, self.frame_end)
        if not line:
            raise self.too_long(self.end + 1 if self.frame_end == self.end else self.end)
        self.needs_watching = True
        self.at = line.end()
        return line[0]

    def unusual(self) -> None:
        """Step over what builds a tuple that may hold anything, or a list or dict in the manner of protocol 0."""
        self.needs_watching = True
        self.at += 1

    def refused_by_machine(self) -> None:
        """End here, as the machine will: it knows the name that is asked for, and raises."""
        self.is_over = True

    # ------------------------------------------------------------ errors

    def too_long(self, target: int) -> SnapshotError:
        if target > self.end:
            return SnapshotError(
                f"is cut off: what begins at byte {self.at:,} needs more than the {self.end - self.at:,} bytes left",
                DUMP_AGAIN,
            )
        return SnapshotError(f"is a damaged pickle: at byte {self.at:,}, an instruction leaves its frame", DUMP_AGAIN)

    def unwanted(self, opcode: int) -> SnapshotError:
        if opcode in _UNWANTED:
            return SnapshotError(f"holds {_UNWANTED[opcode]}; {DATA_ONLY}", "write it again as plain data")
        known = next((known.name for known in pickletools.opcodes if known.code == chr(opcode)), None)
        what = f"the pickle instruction {known}" if known else f"0x{opcode:02x}, no pickle instruction,"
        return SnapshotError(f"has {what} at byte {self.at:,}, where a snapshot has none", DUMP_AGAIN)


_STEPS: dict[int, Callable[[_Proof], object]] = {
    pickle.SHORT_BINUNICODE[0]: lambda proof: proof.sized(1),
    pickle.BINUNICODE[0]: lambda proof: proof.sized(4),
    pickle.BINUNICODE8[0]: lambda proof: proof.sized(8),
    pickle.LONG1[0]: lambda proof: proof.long(1),
    pickle.LONG4[0]: lambda proof: proof.long(4),
    pickle.FRAME[0]: _Proof.frame,
    pickle.STOP[0]: _Proof.stop,
    pickle.LONG_BINPUT[0]: _Proof.put,
    pickle.PUT[0]: _Proof.put_line,
    **dict.fromkeys(pickle.INT + pickle.LONG + pickle.FLOAT + pickle.GET, _Proof.number_line),
    pickle.UNICODE[0]: _Proof.text_line,
    **dict.fromkeys(pickle.TUPLE + pickle.TUPLE1 + pickle.TUPLE2 + pickle.TUPLE3, _Proof.unusual),
    **dict.fromkeys(pickle.LIST + pickle.DICT, _Proof.unusual),
    **dict.fromkeys(pickle.GLOBAL + pickle.STACK_GLOBAL + pickle.INST, _Proof.refused_by_machine),
    **dict.fromkeys(pickle.PERSID + pickle.BINPERSID, _Proof.refused_by_machine),
}


def _plain_frames(data: memoryview, at: int) -> set[int]:
    """Where frames begin that hold only the commonest instructions, of those that follow on each other from `at`."""
    if len(data) < _WORTH_ASKING:
        return set()
    import pyarrow as pa
    import pyarrow.compute as pc

    bounds = array("q", [at])
    while at < len(data) and data[at] == pickle.FRAME[0]:
        at += 9 + int.from_bytes(data[at + 1 : at + 9], "little")
        if at > len(data):
            break
        bounds.append(at)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    frames = pa.Array.from_buffers(pa.large_binary(), len(bounds) - 1, buffers)
    # The same engine, asked about a letter of two bytes, shows that it counts bytes, as Arrow has it do for binary.
    probe = pc.match_substring_regex(pa.scalar(b"h\xc3\xa9", pa.large_binary()), r"\A(?s:h..)\z")
    if not probe.as_py():
        return set()
    answers = pc.match_substring_regex(frames, _PLAIN_FRAME).to_pylist()
    return {begin for begin, is_plain in zip(bounds, answers, strict=False) if is_plain}
