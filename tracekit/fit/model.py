"""Recordings of one program at several points become one program with a rule for each size.

What is matched with what is decided here, by way of `align`, and which rule follows, by way of `rule`; nothing is run.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence, Set
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil

from tracekit.allocator.program import ALLOCATE, ATTEMPT, COMPLETE, Program
from tracekit.errors import TracekitError
from tracekit.fit import rule as rules
from tracekit.fit.align import MATCHED, MOST_DIFFERENCES, align
from tracekit.fit.rule import Kind, Point, Rule
from tracekit.fit.source import Frame, Source
from tracekit.terminal import mib

LEAST_MATCHED = Fraction(2, 3)
"""Share of the bytes asked for that must have a partner; of one program at two sizes it is more than nine tenths."""

WELL_MATCHED = Fraction(49, 50)
"""Share of the bytes with a partner below which C++ stacks are left out as a trial: kernels may differ by size."""

MOST_UNEXPLAINED = Fraction(1, 10)
"""Share of the bytes at the peak that may rest on no rule in whole bytes."""

MOST_GROWN = 2
"""Parameters that may go with a variable, such as an embedding of positions; where more differ, so do the models."""

_SAME_AT_ANY_SIZE = frozenset(
    ("parameter", "buffer", "gradient", "gradient_in_flight", "optimizer_state", "optimizer_temporary",
     "weight_copy", "library_workspace", "before_recording")
)  # fmt: skip
"""Buckets whose sizes the model and the optimizer make, not the data."""


@dataclass(frozen=True, slots=True)
class Match:
    """How a recording was matched with the largest one.

    Attributes:
        source: the recording.
        partner: for each allocation of the largest recording its partner's number, None where it has none.
        share: how much of the bytes that the largest recording asks for has a partner.
        unmatched_count: its allocations without a partner.
        left_over_count: the smaller recording's allocations without one.
    """

    source: Source
    partner: list[int | None]
    share: Fraction
    unmatched_count: int
    left_over_count: int


@dataclass(frozen=True, slots=True)
class Model:
    """A program whose sizes follow from the variables.

    Attributes:
        variables: their names.
        sources: the recordings, smallest first.
        template: the recording whose operations, stacks and settings are taken.
        rules: a rule for each allocation of the template.
        matches: how each other recording was matched with it.
    """

    variables: tuple[str, ...]
    sources: list[Source]
    template: Source
    rules: list[Rule]
    matches: list[Match]

    def stream(self, point: Point) -> tuple[Program, Source]:
        """The program at a point, and the recording that its events are those of.

        At a recorded point it is the recording's own; where that has no C++ stacks and the template has, and they do
        the same, the events are named as the template's.
        """
        recorded, program = self.recorded_at(point), self.template.program
        if recorded is None:
            return replace(program, requested=[one.at(point) for one in self.rules]), self.template
        is_told_better = self.template.has_native and not recorded.has_native
        if is_told_better and _does_the_same(recorded.program, program):
            return replace(recorded.program, source_ix=program.source_ix), self.template
        return recorded.program, recorded

    def cautious(self, point: Point) -> Program | None:
        """The program at a point with what has no rule as large as it may well be there; None where that is no other.

        What the data makes and no rule in whole bytes explains goes in proportion, where that is more.
        """
        largest, program = self.sources[-1], self.template.program
        if self.recorded_at(point) is not None:
            return None
        ratio = Fraction(rules.value_of((1,) * len(point), point), rules.value_of((1,) * len(point), largest.point))
        likely = [one.at(point) for one in self.rules]
        sizes = [
            max(size, ceil(recorded * ratio))
            if one.kind in (Kind.NEARLY, Kind.KEPT) and bucket not in _SAME_AT_ANY_SIZE
            else size
            for size, recorded, one, bucket in zip(
                likely, largest.program.requested, self.rules, largest.bucket, strict=True
            )
        ]
        return None if sizes == likely else replace(program, requested=sizes)

    def recorded_at(self, point: Point) -> Source | None:
        """The recording made at a point, None where there is none."""
        return next((source for source in self.sources if source.point == point), None)

    @property
    def keeps_opening(self) -> bool | None:
        """False where what is older than the recording changes its size, so that it cannot lie as it lay; else None."""
        opening = self.rules[: self.template.program.opening_count]
        return None if all(one.kind is Kind.CONSTANT for one in opening) else False

    def tally(self) -> Counter[Kind]:
        """How many allocations rest on each kind of rule."""
        return Counter(one.kind for one in self.rules)


def build(variables: Sequence[str], sources: Sequence[Source]) -> Model:
    """Learn from recordings.

    Args:
        variables: one or two names.
        sources: recordings of the same program, each at another point.

    Raises:
        TracekitError: where they cannot be recordings of one program, or do not tell enough.
    """
    ordered = sorted(sources, key=lambda source: (rules.value_of((1,) * len(source.point), source.point), source.point))
    largest = ordered[-1]
    _refuse_points(variables, [source.point for source in ordered])
    if len(ordered) == 1:
        return Model(tuple(variables), ordered, largest, _guessed(largest), [])
    for source in ordered[:-1]:
        _refuse_others(source, largest)
    matches = [_matched(source, largest) for source in ordered[:-1]]
    for match in matches:
        _refuse_strangers(match, largest)
    learned = _twinned(_learned(matches, largest), largest)
    template = _best_told(largest, matches)
    model = Model(tuple(variables), ordered, template, learned, matches)
    _refuse_unexplained(model)
    return model


# ------------------------------------------------------------------ what cannot be recordings of one program


def _refuse_points(variables: Sequence[str], points: Sequence[Point]) -> None:
    for point, count in Counter(points).items():
        if count > 1:
            raise TracekitError(
                f"{count} recordings are given for {told(point)}", "give each recording the value it was made at"
            )
    if len(points) == 1:
        if len(variables) > 1:
            raise TracekitError(
                f"one recording does not tell {' and '.join(variables)} apart", "record at other values of each"
            )
        return
    alike = rules.indistinct(points)
    if alike is not None:
        one, other = (in_words(product, variables) for product in alike)
        raise TracekitError(
            f"the recordings at {', '.join(map(told, points))} do not tell what goes with {one}"
            f" from what goes with {other}",
            "add a recording that differs in one variable only",
        )


def _refuse_others(source: Source, largest: Source) -> None:
    ratios = _ratios(source.point, largest.point)
    if source.step_count and largest.step_count and source.step_count != largest.step_count:
        raise TracekitError(
            f"{source.name} has {source.step_count} training steps, {largest.name} has {largest.step_count}",
            "record the same number of steps at each value",
        )
    ours, theirs = (_sizes_of("parameter", one) for one in (source, largest))
    differing = [pair for pair in zip(ours, theirs, strict=False) if pair[0] != pair[1]]
    is_grown = len(ours) == len(theirs) and all(_is_explained(*pair, ratios) for pair in differing)
    if ours and theirs and differing and not (is_grown and len(differing) <= MOST_GROWN):
        raise TracekitError(
            f"the models differ: {sum(ours):,} bytes of parameters in {source.name}, {sum(theirs):,} in {largest.name}",
            "give recordings of the same model at different values",
        )


def _sizes_of(bucket: str, source: Source) -> list[int]:
    return [size for size, name in zip(source.program.requested, source.bucket, strict=True) if name == bucket]


def _refuse_strangers(match: Match, largest: Source) -> None:
    if match.share < LEAST_MATCHED:
        raise _strangers(
            match.source,
            largest,
            f"only {float(match.share):.0%} of the bytes that the larger one asks for have a partner in the other",
        )
    sizes = largest.program.requested
    if all(
        number is None or match.source.program.requested[number] == size
        for size, number in zip(sizes, match.partner, strict=True)
    ):
        raise TracekitError(
            f"no size differs between {match.source.name} and {largest.name}",
            "check the values: they seem to have been recorded at the same one",
        )


def _strangers(source: Source, largest: Source, why: str) -> TracekitError:
    return TracekitError(
        f"{source.name} and {largest.name} are not the same program: {why}",
        "give recordings of the same script, model and settings, each with the value it was made at",
    )


def _refuse_unexplained(model: Model) -> None:
    program = model.sources[-1].program
    at_peak = unexplained_at_peak(model)
    share = Fraction(at_peak, max(sum(map(program.requested.__getitem__, alive_at_peak(program))), 1))
    if share > MOST_UNEXPLAINED:
        raise TracekitError(
            f"{' and '.join(model.variables)} does not explain {mib(at_peak)} MiB, {float(share):.0%} of the peak:"
            " their sizes follow no rule in whole bytes",
            "add a recording at a larger value, or record with fixed shapes",
        )


# ------------------------------------------------------------------ matching


def _matched(source: Source, largest: Source) -> Match:
    """Match by all stacks; where that leaves much without a partner, by Python's alone if they match more."""
    matches: list[Match] = []
    for with_native in (True, False) if source.has_native and largest.has_native else (False,):
        match = _matched_by(source, largest, with_native=with_native)
        matches += [] if match is None else [match]
        if match is not None and match.share >= WELL_MATCHED:
            break
    if not matches:
        raise _strangers(source, largest, f"more than {MOST_DIFFERENCES:,} of what they do has no partner in the other")
    return max(matches, key=lambda match: match.share)


def _matched_by(source: Source, largest: Source, *, with_native: bool) -> Match | None:
    """A match by Python's stacks, or by C++ ones as well; None where the two have too little in common."""
    ours, theirs = source.program, largest.program
    ratios = _ratios(source.point, largest.point)
    must_grow = all(small <= large for small, large in zip(source.point, largest.point, strict=True))

    def sense(one: int, other: int) -> int:
        if ours.number[one] < 0:
            return 0
        size, larger = ours.requested[ours.number[one]], theirs.requested[theirs.number[other]]
        if must_grow and larger < size:
            return -MATCHED - 1
        if not _is_explained(size, larger, ratios):
            return 0
        stays = largest.bucket[theirs.number[other]] in _SAME_AT_ANY_SIZE
        return 2 if stays == (larger == size) else 1

    coarse = _tokens(source, largest, with_native=with_native)
    families = _families(source, largest, ratios)
    members = Counter(families.values())

    def is_doubtful(one: int, other: int) -> bool:
        del other
        size = ours.requested[ours.number[one]] if ours.number[one] >= 0 else 0
        return members[families.get((False, size), -1)] > 2

    fine = _finer(coarse, source, largest, families)
    pairs = align(fine, coarse, sense, is_doubtful)
    if pairs is None:
        return None
    partner: list[int | None] = [None] * len(theirs.requested)
    for one, other in pairs:
        if ours.kind[one] in (ALLOCATE, ATTEMPT):
            partner[theirs.number[other]] = ours.number[one]
    found = [size for size, number in zip(theirs.requested, partner, strict=True) if number is not None]
    return Match(
        source,
        partner,
        Fraction(sum(found), sum(theirs.requested) or 1),
        len(partner) - len(found),
        len(ours.requested) - len(found),
    )


def _ratios(point: Point, larger: Point) -> set[Fraction]:
    """How many times larger a size may be at another point, where it goes with one product."""
    return {
        Fraction(rules.value_of(product, larger), rules.value_of(product, point))
        for product in rules.PRODUCTS[len(point)]
    }


def _is_explained(size: int, larger: int, ratios: Set[Fraction]) -> bool:
    """Whether one product makes one size of the other."""
    return Fraction(larger, size) in ratios if size else not larger


Tokens = list[tuple[Hashable, ...]]


def _tokens(source: Source, largest: Source, *, with_native: bool) -> tuple[Tokens, Tokens]:
    """What each operation is known by in both recordings: its kind, and who asked for its allocation.

    Frames that only one of them knows are left out (an outer function that another version of the script has), and so
    are the lines of a file that seems to be of another version.
    """
    moved = _moved_files(_frames(source), _frames(largest))

    def known(frame: Frame) -> Frame:
        file, function, line = frame
        return file, function, None if file in moved else line

    shared = {known(frame) for frame in _frames(source)} & {known(frame) for frame in _frames(largest)}

    def tokens(one: Source) -> Tokens:
        stacks: dict[Hashable, Hashable] = {
            python: tuple(frame for frame in map(known, python) if frame in shared) for python in set(one.python)
        }
        keys = [
            (stacks[python], native if with_native else ())
            for python, native in zip(one.python, one.native, strict=True)
        ]
        return [
            (kind, keys[number] if number >= 0 else None)
            for kind, number in zip(one.program.kind, one.program.number, strict=True)
        ]

    return tokens(source), tokens(largest)


Sized = tuple[bool, int]
"""A size, and whether it is one of the largest recording."""


def _families(source: Source, largest: Source, ratios: Set[Fraction]) -> dict[Sized, int]:
    """Classes of sizes: two sizes are of one class where one product makes one of the other."""
    sizes, larger_sizes = set(source.program.requested), set(largest.program.requested)
    family: dict[Sized, int] = {}
    relatives: defaultdict[Sized, list[Sized]] = defaultdict(list)
    for size in sizes:
        for ratio in ratios:
            if size * ratio in larger_sizes:
                small, large = (False, size), (True, int(size * ratio))
                relatives[small].append(large)
                relatives[large].append(small)
    for one in list(relatives):
        todo = [one]
        while todo:
            member = todo.pop()
            if member not in family:
                family[member] = family.get(one, len(family))
                todo += relatives[member]
    return family


def _finer(
    coarse: tuple[Tokens, Tokens], source: Source, largest: Source, families: dict[Sized, int]
) -> tuple[Tokens, Tokens]:
    """The tokens with the class of the size added."""

    def finer(tokens: Tokens, program: Program, is_large: bool) -> Tokens:
        return [
            (*token, families.get((is_large, program.requested[number])) if number >= 0 else None)
            for token, number in zip(tokens, program.number, strict=True)
        ]

    return finer(coarse[0], source.program, False), finer(coarse[1], largest.program, True)


def _frames(source: Source) -> set[Frame]:
    return {frame for stack in set(source.python) for frame in stack}


def _moved_files(ours: Set[Frame], theirs: Set[Frame]) -> set[str]:
    """The files of which one recording has lines, in functions that both know, that the other has not."""
    functions = {frame[:2] for frame in ours} & {frame[:2] for frame in theirs}
    return {frame[0] for frame in ours ^ theirs if frame[:2] in functions}


def _best_told(largest: Source, matches: Sequence[Match]) -> Source:
    """The recording whose stacks are taken: the largest, unless it has no C++ stacks and a twin of its program has."""
    if largest.has_native:
        return largest
    for match in reversed(matches):
        if match.source.has_native and _does_the_same(match.source.program, largest.program):
            return match.source
    return largest


def _does_the_same(one: Program, other: Program) -> bool:
    """Whether two programs differ in sizes only."""
    return (one.kind, one.number, one.stream, one.pool) == (other.kind, other.number, other.stream, other.pool)


# ------------------------------------------------------------------ rules


def _learned(matches: Sequence[Match], largest: Source) -> list[Rule]:
    """A rule for each allocation of the largest recording, from its partners."""
    variables = len(largest.point)
    recorded = [
        (
            *(
                (match.source.point, match.source.program.requested[partner])
                for match in matches
                if (partner := match.partner[number]) is not None
            ),
            (largest.point, size),
        )
        for number, size in enumerate(largest.program.requested)
    ]
    # what was seen at every point says which products this program is made of, for what was not
    known: dict[tuple[tuple[Point, int], ...], Rule] = {}
    used: Counter[rules.Product] = Counter()
    for seen in recorded:
        if len(seen) > len(matches):
            if seen not in known:
                known[seen] = rules.learn([point for point, _ in seen], [size for _, size in seen])
            used.update(product for product, _ in known[seen].terms)
    first, *others = rules.PRODUCTS[variables]
    products = [first, *sorted(others, key=lambda product: -used[product])]
    for seen in recorded:
        if seen not in known:
            known[seen] = (
                rules.learn([point for point, _ in seen], [size for _, size in seen], products)
                if len(seen) > 1
                else rules.constant(seen[0][1], Kind.KEPT, variables)
            )
    return [known[seen] for seen in recorded]


def _twinned(learned: list[Rule], largest: Source) -> list[Rule]:
    """Give what has no partner the rule of its twins, where all of them follow one; else the cautious one.

    Twins are allocations of the same size, of the same bucket if there are any; else those that are the model's and the
    optimizer's, or those that are not, as it is itself: at some value a weight and an activation are of one size.
    What the data makes goes in proportion where that gives whole bytes: a size that only looks like the data's is then
    taken too large at larger values, and one that is the data's is not taken too small.
    """
    sizes = largest.program.requested
    twins: defaultdict[tuple[int, str | bool | None], set[Rule]] = defaultdict(set)
    for size, bucket, one in zip(sizes, largest.bucket, learned, strict=True):
        if one.kind is not Kind.KEPT:
            twins[size, bucket].add(one)
            twins[size, bucket in _SAME_AT_ANY_SIZE].add(one)

    def rule_of(size: int, bucket: str | None, one: Rule) -> Rule:
        if one.kind is Kind.KEPT:
            for likeness in (bucket, bucket in _SAME_AT_ANY_SIZE):
                terms = {twin.terms for twin in twins.get((size, likeness), ())}
                if len(terms) == 1:
                    return Rule(terms.pop(), Kind.TWIN)
            if bucket not in _SAME_AT_ANY_SIZE:
                return rules.proportional(size, largest.point, Kind.SCALED) or one
        return one

    return list(map(rule_of, sizes, largest.bucket, learned))


def _guessed(source: Source) -> list[Rule]:
    """Rules from one recording: what the model and the optimizer make stays, all else goes in proportion."""
    program = source.program
    constant_sizes = {
        size for size, bucket in zip(program.requested, source.bucket, strict=True) if bucket in _SAME_AT_ANY_SIZE
    }
    return [
        (None if size in constant_sizes else rules.proportional(size, source.point, Kind.GUESSED))
        or rules.constant(size, Kind.KEPT, 1)
        for size in program.requested
    ]


def unexplained_at_peak(model: Model) -> int:
    """Bytes alive at the largest recording's peak that rest on no rule in whole bytes."""
    program = model.sources[-1].program
    alive = alive_at_peak(program)
    return sum(
        program.requested[number]
        for number in alive
        if model.rules[number].kind in (Kind.NEARLY, Kind.SCALED, Kind.KEPT)
    )


def alive_at_peak(program: Program) -> set[int]:
    """The allocations that are alive where most bytes are asked for."""
    live = peak = at = 0
    held: set[int] = set()
    for position, (kind, number) in enumerate(zip(program.kind, program.number, strict=True)):
        if kind == ALLOCATE:
            live += program.requested[number]
            held.add(number)
            peak, at = max((peak, at), (live, position), key=lambda one: one[0])
        elif kind == COMPLETE and number in held:
            live -= program.requested[number]
            held.remove(number)
    alive: set[int] = set()
    for kind, number in zip(program.kind[: at + 1], program.number[: at + 1], strict=True):
        if kind == ALLOCATE:
            alive.add(number)
        elif kind == COMPLETE:
            alive.discard(number)
    return alive


def in_words(product: rules.Product, variables: Sequence[str]) -> str:
    """A product as a person writes it."""
    powers = {1: "", 2: " squared"}
    parts = [f"{name}{powers[power]}" for name, power in zip(variables, product, strict=True) if power]
    return " times ".join(parts) or "nothing"


def told(point: Point) -> str:
    """A point as a person writes it: 8, or 8x512."""
    return "x".join(map(str, point))
