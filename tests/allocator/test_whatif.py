"""A recorded program run again: against what really happened, and as a specification of small programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.allocator.conftest import Recording
from tracekit.allocator.device import Layout, ascending, descending, shuffled
from tracekit.allocator.program import ALLOCATE, ATTEMPT, COMPLETE, DROP, EMPTY_CACHE, Program, allocate_earlier
from tracekit.allocator.replay import replay_recording
from tracekit.allocator.settings import Settings, TieOrder
from tracekit.allocator.whatif import Outcome, run
from tracekit.units import MIB

CARD = 45_440 * MIB
"""The limit that the batch sweep was recorded under."""

Load = Callable[[str], Recording]


def events_of(outcome: Outcome) -> list[tuple[str | None, int | None, int | None]]:
    events = outcome.events
    return list(zip(events.action, events.address, events.size, strict=True))


def recorded_events(given: Recording) -> list[tuple[str | None, int | None, int | None]]:
    events = given.events
    rows = zip(events.action, events.address, events.size, strict=True)
    return [row for row in rows if row[0] != "snapshot"]


class TestAgainstWhatHappened:
    @pytest.mark.parametrize(
        ("name", "limit"),
        [
            ("gpt2_b8_ws8", None),
            ("gpt2_b8_expandable", None),
            ("gpt2_b8_maxsplit", None),
            ("small_streams", None),
            ("small_cudagraph", None),
            ("small_ring", None),
            ("mempool", None),
            ("frag_dynamic", 3600 * MIB),
            ("gc_threshold", 1200 * MIB),
            ("sweep_20_ws8", CARD),
            ("sweep_21_ws8", CARD),
            ("sweep_21_ws8_expandable", CARD),
        ],
    )
    def test_under_its_own_settings_a_program_makes_its_own_recording(
        self, name: str, limit: int | None, recording: Load
    ) -> None:
        given = recording(name)
        outcome = run(given.program(), limit=limit)

        assert events_of(outcome) == recorded_events(given)
        known = [ix for ix in outcome.source_ix if ix is not None]
        assert known == sorted(known)

    def test_expandable_segments_reserve_what_a_real_run_with_them_reserved(self, recording: Load) -> None:
        outcome = run(recording("gpt2_b8_saved").program(), Settings.parse("expandable_segments:True"))

        assert outcome.peak_reserved.value == 17_878 * MIB
        assert outcome.peak_reserved.value == recording("gpt2_b8_expandable").peak("reserved_bytes")
        assert outcome.peak_allocated.value == recording("gpt2_b8_expandable").peak("allocated_bytes")

    def test_max_split_size_and_divisions_too(self, recording: Load) -> None:
        settings = Settings.parse("max_split_size_mb:256,roundup_power2_divisions:4")
        outcome = run(recording("gpt2_b8_saved").program(), settings)

        assert outcome.peak_reserved.value == 20_096 * MIB
        assert outcome.peak_reserved.value == recording("gpt2_b8_maxsplit").peak("reserved_bytes")
        assert outcome.peak_allocated.value == recording("gpt2_b8_maxsplit").peak("allocated_bytes")
        assert round(outcome.peak_allocated.value / MIB, 1) == 18_119.1

    def test_batch_20_fits_the_smaller_card(self, recording: Load) -> None:
        outcome = run(recording("sweep_20_ws8").program(), limit=CARD)

        assert outcome.fits
        assert outcome.retries == 0
        assert outcome.peak_reserved.value == 44_948 * MIB

    def test_batch_21_runs_out_of_memory_as_it_did(self, recording: Load) -> None:
        given = recording("sweep_21_ws8")
        outcome = run(given.program(), limit=CARD)

        story = outcome.out_of_memory
        assert story is not None
        assert given.events.action[3816] == "oom"
        assert story.event_ix == 3816
        assert story.request_bytes == story.rounded_bytes == 4_322_906_112
        assert round(story.allocated_bytes / MIB, 2) == 38_204.36
        assert story.reserved_bytes == 42_042 * MIB
        assert story.released_bytes == 1_008 * MIB
        assert story.free_bytes == CARD - 42_042 * MIB
        assert all(block.obstacle == "too small" for block in story.cached)
        assert story.cached[0].size == 3_201_302_528
        assert story.cached_bytes == story.reserved_bytes - story.allocated_bytes

    def test_the_largest_cached_block_is_pinned_by_a_live_neighbour(self, recording: Load) -> None:
        program = recording("sweep_21_ws8").program()
        story = run(program, limit=CARD).out_of_memory

        assert story is not None
        largest = story.cached[0]
        assert largest.below is not None
        assert largest.above is None
        assert program.requested[largest.below] == 66_060_288
        assert largest.segment_size - largest.size > program.requested[largest.below]

    def test_expandable_segments_let_batch_21_fit(self, recording: Load) -> None:
        outcome = run(recording("sweep_21_ws8").program(), Settings.parse("expandable_segments:True"), limit=CARD)

        assert outcome.fits

    def test_the_whole_of_batch_21_fails_without_them(self, recording: Load) -> None:
        outcome = run(recording("sweep_21_ws8_expandable").program(), Settings(), limit=CARD)

        assert outcome.out_of_memory is not None
        assert outcome.out_of_memory.request_bytes == 4_322_906_112
        assert outcome.out_of_memory.reserved_bytes == 42_042 * MIB

    @pytest.mark.parametrize("layout", [None, ascending(), descending(), shuffled(1), shuffled(2)])
    def test_the_optimizers_state_created_first_lets_it_fit(self, layout: Layout | None, recording: Load) -> None:
        """Adam's two moments, 949 MiB in 296 tensors, are created in the first step, between activations."""
        given = recording("sweep_21_ws8_expandable")
        program = given.program()
        state = optimizer_state(given)
        early = allocate_earlier(program, state, program.source_ix.index(given.reading_ix("optimizer")))
        outcome = run(early, Settings(), limit=CARD, layout=layout)

        assert len(state) == 296
        assert outcome.fits
        assert outcome.retries == 0
        assert outcome.peak_reserved.value == 44_086 * MIB

    def test_a_limit_just_below_the_peak_still_fits_by_giving_back_the_cache(self, recording: Load) -> None:
        """gpt2_b8_ws8 reserves 18,334 MiB; 408 of them lie idle when the largest request comes."""
        program = recording("gpt2_b8_ws8").program()
        peak = run(program).peak_reserved.value
        outcome = run(program, limit=peak - 2 * MIB)

        assert peak == 18_334 * MIB
        assert outcome.fits
        assert outcome.retries == 1
        assert outcome.peak_reserved.value == 17_926 * MIB

    def test_a_limit_below_that_does_not(self, recording: Load) -> None:
        """One segment below the peak, that of the largest request, is less than what is allocated at the peak."""
        program = recording("gpt2_b8_ws8").program()
        outcome = run(program, limit=(18_334 - 1_572) * MIB)

        story = outcome.out_of_memory
        assert story is not None
        assert story.request_bytes == 1_646_821_376
        assert story.segment_bytes == 1_572 * MIB
        assert story.allocated_bytes + story.rounded_bytes > 16_762 * MIB

    def test_the_real_address_order_is_what_reserved_peaks_need(self, recording: Load) -> None:
        """The driver mostly lays new segments below the old; laid above them, a recording's peak is missed."""
        program = recording("gpt2_b8_maxsplit").program()

        assert run(program, layout=descending()).peak_reserved.value == 20_096 * MIB
        assert run(program, layout=ascending()).peak_reserved.value == 19_960 * MIB


def optimizer_state(given: Recording) -> list[int]:
    """The allocations of the first optimizer step that live on as the optimizer's state."""
    rows = given.replay().placements
    begin, end, last = (given.reading_ix(label) for label in ("1.backward", "1.optimizer", "2.optimizer"))
    addresses = {row[2] for row in given.facts["tensors"] if row[0] == "optimizer"}
    return [
        number
        for number, (address, birth, death) in enumerate(zip(rows.address, rows.birth_ix, rows.death_ix, strict=True))
        if address in addresses and birth is not None and begin <= birth < end and (death is None or death > last)
    ]


OTHER_SETTINGS = [
    "expandable_segments:True",
    "max_split_size_mb:64",
    "max_split_size_mb:256,roundup_power2_divisions:4",
    "expandable_segments:True,max_split_size_mb:128",
    "garbage_collection_threshold:0.6",
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
]


@pytest.mark.parametrize("options", OTHER_SETTINGS)
@pytest.mark.parametrize("share", [None, 0.97, 0.9])
@pytest.mark.parametrize("name", ["gpt2_b8_ckpt", "small_streams", "small_cudagraph", "late_recording_ctx128"])
def test_an_outcome_is_a_recording_that_replays_exactly(
    name: str, share: float | None, options: str, recording: Load
) -> None:
    program = recording(name).program()
    limit = None if share is None else int(run(program).peak_reserved.value * share)
    outcome = run(program, Settings.parse(options), limit=limit)
    replay = replay_recording(outcome.events, outcome.segments, outcome.settings)

    assert replay.is_exact, replay.verdict
    assert replay.peak_allocated.value == outcome.peak_allocated.value
    assert replay.peak_active.value == outcome.peak_active.value
    assert replay.peak_requested.value == outcome.peak_requested.value
    assert replay.peak_reserved.value == outcome.peak_reserved.value
    assert replay.final_allocated == outcome.final_allocated
    assert replay.final_reserved == outcome.final_reserved


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("gpt2_b8_bf16_sdpa", Settings(tie_order=TieOrder.SEGMENT_AGE)),
        ("gpt2_b8_bf16_sdpa", Settings(tie_order=TieOrder.BLOCK_AGE)),
        ("gpt2_b8_bf16_sdpa", Settings(large_segment_size=64 * MIB)),
        ("gpt2_b8_bf16_sdpa", Settings(large_segment_size=64 * MIB, tie_order=TieOrder.SEGMENT_AGE)),
        ("small_cudagraph", Settings(no_split_pools=frozenset({(1, 0)}))),
        ("mempool", Settings(no_split_pools=frozenset({(0, 1)}))),
    ],
)
def test_a_setting_that_no_snapshot_records_is_inferred(name: str, hidden: Settings, recording: Load) -> None:
    outcome = run(recording(name).program(), hidden, layout=shuffled(3))
    replay = replay_recording(outcome.events, outcome.segments, Settings())

    assert replay.is_exact, replay.verdict
    assert replay.settings == hidden
    assert all(note.startswith("inferred: ") for note in replay.notes)
    assert replay.notes


def test_expandable_segments_that_the_settings_do_not_tell_of_are_followed(recording: Load) -> None:
    """As in a program that switches them on at run time."""
    given = recording("gpt2_b8_expandable")
    replay = replay_recording(given.events, given.segments, Settings())

    assert replay.is_exact, replay.verdict


class TestPrograms:
    """Small programs, written out."""

    def test_what_was_freed_on_another_stream_is_completed_where_the_program_did(self) -> None:
        program = Program()
        block = program.add_allocation(5 * MIB)
        other = program.add_allocation(5 * MIB)
        program.add(ALLOCATE, block)
        program.add(DROP, block)
        program.add(ALLOCATE, other)
        program.add(COMPLETE, block)
        outcome = run(program)

        assert outcome.events.action == ["segment_alloc", "alloc", "free_requested", "alloc", "free_completed"]
        assert outcome.peak_allocated.value == 5 * MIB
        assert outcome.peak_active.value == 10 * MIB

    def test_a_release_on_the_way_completes_it_once(self) -> None:
        program = Program()
        block = program.add_allocation(30 * MIB)
        program.add(ALLOCATE, block)
        program.add(DROP, block)
        program.add(EMPTY_CACHE, -1)
        program.add(COMPLETE, block)
        outcome = run(program)

        assert outcome.events.action == [
            "segment_alloc",
            "alloc",
            "free_requested",
            "free_completed",
            "segment_free",
        ]
        assert outcome.segments == []

    def test_a_request_that_failed_in_the_recording_may_succeed(self) -> None:
        program = Program()
        program.add(ATTEMPT, program.add_allocation(30 * MIB), 7)

        outcome = run(program)
        assert outcome.fits
        assert outcome.peak_allocated == (30 * MIB, 7)
        assert outcome.final_allocated == 0

        short = run(program, limit=20 * MIB)
        assert short.out_of_memory is not None
        assert short.out_of_memory.event_ix == 7
        assert short.events.action == ["oom"]

    def test_a_program_ends_where_a_request_fails(self) -> None:
        program = Program()
        for size in (12, 30, 12):
            program.add(ALLOCATE, program.add_allocation(size * MIB))
        outcome = run(program, limit=40 * MIB)

        assert outcome.operation_count == 1
        assert outcome.events.action == ["segment_alloc", "alloc", "oom"]
        assert outcome.out_of_memory is not None
        assert outcome.out_of_memory.free_bytes == 28 * MIB

    def test_why_a_cached_block_did_not_serve_is_told(self) -> None:
        """Each of three segments is kept by a small neighbour, and none of their free parts serves 15 MiB."""
        program = Program(settings=Settings.parse("max_split_size_mb:64"))
        places = [(0, (0, 0), 12), (7, (0, 0), 17), (0, (0, 1), 16)]
        for stream, pool, size in places:
            free, kept = (program.add_allocation(part * MIB, stream, pool) for part in (size, 20 - size))
            whole = program.add_allocation(20 * MIB, stream, pool)
            program.add(ALLOCATE, whole)
            program.add(DROP, whole)
            program.add(COMPLETE, whole)
            program.add(ALLOCATE, free)
            program.add(ALLOCATE, kept)
            program.add(DROP, free)
            program.add(COMPLETE, free)
        program.add(ALLOCATE, program.add_allocation(15 * MIB))
        story = run(program, limit=70 * MIB).out_of_memory

        assert story is not None
        assert [(block.size // MIB, block.obstacle, block.below, block.above) for block in story.cached] == [
            (17, "another stream", None, 4),
            (16, "another pool", None, 7),
            (12, "too small", None, 1),
        ]

    def test_moving_an_allocation_that_comes_earlier_already_is_refused(self) -> None:
        program = Program()
        first, second = (program.add_allocation(512) for _ in range(2))
        program.add(ALLOCATE, first)
        program.add(ALLOCATE, second)

        assert allocate_earlier(program, [second], 0).number == [second, first]
        with pytest.raises(ValueError, match="before 2 already"):
            allocate_earlier(program, [first], 2)

    def test_the_opening_state_is_kept_or_asked_for_anew(self, recording: Load) -> None:
        program = recording("late_recording_ctx512").program()
        kept, anew = run(program), run(program, keeps_opening=False)

        assert kept.peak_reserved.value == 12_660_506_624
        assert anew.peak_reserved.value < kept.peak_reserved.value
        assert kept.peak_requested.value == anew.peak_requested.value == 12_426_629_128
