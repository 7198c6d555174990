"""Replays of recordings written out: given events and final blocks, the placements and what is noted."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tracekit.allocator.recording import Events, FinalBlock, FinalSegment
from tracekit.allocator.replay import replay_recording
from tracekit.allocator.result import Replay
from tracekit.allocator.settings import PoolId, Settings
from tracekit.units import KIB, MIB, parse_bytes

BASE = 0x7F00_0000_0000


def number(text: str) -> int:
    """`A`, `A+5MiB`, `B`: places in segments that lie a GiB apart; anything else is a size."""
    if text[0] in "ABCD":
        return BASE + (ord(text[0]) - ord("A")) * 1024 * MIB + (parse_bytes(text[2:]) if text[1:] else 0)
    return parse_bytes(text)


def events(text: str) -> Events:
    """One event a line: action, address, size, and a stream where it is not 0."""
    rows = [line.split() for line in text.strip().splitlines()]
    return Events(
        [row[0] for row in rows],
        [None if row[1] == "-" else number(row[1]) for row in rows],
        [number(row[2]) for row in rows],
        [int(row[3]) if len(row) > 3 else 0 for row in rows],
    )


def segment(place: str, size: str, *blocks: str, pool: PoolId = (0, 0), is_expandable: bool = False) -> FinalSegment:
    """A final segment; a block is written as its size and what was requested of it, `free` or `pending REQUESTED`."""
    address = number(place)
    final: list[FinalBlock] = []
    for block in blocks:
        parts = block.split()
        state = {"free": "inactive", "pending": "active_pending_free"}.get(parts[1], "active_allocated")
        requested = 0 if parts[1] == "free" else number(parts[-1])
        final.append(FinalBlock(address, number(parts[0]), requested, state))
        address += number(parts[0])
    is_small = number(size) == 2 * MIB
    return FinalSegment(number(place), number(size), 0, pool, is_small, is_expandable, final)


def replayed(text: str, *segments: FinalSegment, options: str = "") -> Replay:
    return replay_recording(events(text), segments, Settings.parse(options))


def placements(replay: Replay) -> list[tuple[int | None, int | None, int | None, int | None, int | None]]:
    """(requested, held, birth, dropped, death) of each placement."""
    rows = replay.placements
    return list(zip(rows.requested, rows.held, rows.birth_ix, rows.free_requested_ix, rows.death_ix, strict=True))


class TestWhole:
    def test_each_allocation_gets_the_block_it_had(self) -> None:
        replay = replayed(
            """
            segment_alloc A 20MiB
            alloc A 5MiB
            alloc A+5MiB 14.5MiB
            free_requested A 5MiB
            free_completed A 5MiB
            snapshot 0 15204352
            """,
            segment("A", "20MiB", "5MiB free", "15MiB 14.5MiB"),
        )

        assert replay.is_exact, replay.verdict
        assert placements(replay) == [
            (5 * MIB, 5 * MIB, 1, 3, 4),
            (29 * MIB // 2, 15 * MIB, 2, None, None),  # half a MiB of slack
        ]
        assert replay.placements.segment_address == [number("A")] * 2
        assert replay.peak_allocated == (20 * MIB, 2)
        assert replay.peak_requested == (39 * MIB // 2, 2)
        assert replay.peak_reserved == (20 * MIB, 0)
        assert replay.ignored == {"snapshot": 1}
        assert replay.verdict.startswith("exact: all 2 addresses")

    def test_no_events_and_no_segments_are_a_recording_too(self) -> None:
        replay = replay_recording(Events([], [], [], []), [], Settings())

        assert replay.is_exact
        assert replay.peak_allocated == (0, None)

    def test_a_deferred_free_ends_where_the_recording_ends_it(self) -> None:
        replay = replayed(
            """
            segment_alloc A 20MiB
            alloc A 5MiB
            free_requested A 5MiB
            alloc A+5MiB 5MiB
            free_completed A 5MiB
            alloc A 5MiB
            """,
            segment("A", "20MiB", "5MiB 5MiB", "5MiB 5MiB", "10MiB free"),
        )

        assert replay.is_exact, replay.verdict
        assert placements(replay)[0] == (5 * MIB, 5 * MIB, 1, 2, 4)
        assert (replay.peak_allocated.value, replay.peak_active.value) == (10 * MIB, 10 * MIB)

    def test_an_allocator_that_runs_short_releases_its_cache_and_tries_again(self) -> None:
        replay = replayed(
            """
            segment_alloc A 30MiB
            alloc A 30MiB
            free_requested A 30MiB
            free_completed A 30MiB
            segment_free A 30MiB
            segment_alloc B 40MiB
            alloc B 40MiB
            oom - 50MiB
            """,
            segment("B", "40MiB", "40MiB 40MiB"),
        )

        assert replay.is_exact, replay.verdict
        assert (replay.empty_cache_ix, replay.retry_ix) == ([], [6])

    def test_a_release_before_a_request_that_fits_is_the_programs(self) -> None:
        replay = replayed(
            """
            segment_alloc A 30MiB
            alloc A 30MiB
            free_requested A 30MiB
            free_completed A 30MiB
            segment_free A 30MiB
            segment_alloc B 30MiB
            alloc B 30MiB
            """,
            segment("B", "30MiB", "30MiB 30MiB"),
        )

        assert replay.is_exact, replay.verdict
        assert (replay.empty_cache_ix, replay.retry_ix) == ([4], [])

    def test_so_is_one_with_another_stack_than_the_request(self) -> None:
        text = """
            segment_alloc A 30MiB
            alloc A 30MiB
            free_requested A 30MiB
            free_completed A 30MiB
            segment_free A 30MiB
            segment_alloc B 40MiB
            alloc B 40MiB
        """
        final = [segment("B", "40MiB", "40MiB 40MiB")]
        told = replace(events(text), stack=[1, 1, 2, 2, 3, 4, 4])
        replay = replay_recording(told, final, Settings())

        assert (replay.empty_cache_ix, replay.retry_ix) == ([4], [])
        assert replay_recording(events(text), final, Settings()).retry_ix == [6]


class TestLate:
    def test_what_is_freed_first_was_there_before(self) -> None:
        replay = replayed(
            """
            free_requested A 5MiB
            free_completed A 5MiB
            alloc A 4MiB
            """,
            segment("A", "20MiB", "5MiB 4MiB", "15MiB 15MiB"),
        )

        assert replay.opening_count == 2
        assert placements(replay) == [
            (5 * MIB, 5 * MIB, None, 0, 1),
            (15 * MIB, 15 * MIB, None, None, None),
            (4 * MIB, 5 * MIB, 2, None, None),
        ]
        assert replay.peak_allocated == (20 * MIB, None)

    def test_in_the_small_pool_every_size_is_known(self) -> None:
        replay = replayed(
            """
            free_requested A 100
            free_completed A 100
            """,
            segment("A", "2MiB", "2MiB free"),
        )

        assert placements(replay) == [(100, 512, None, 0, 1)]
        assert replay.is_exact

    def test_in_the_large_pool_a_gap_of_1_mib_is_slack(self) -> None:
        replay = replayed(
            """
            free_requested A 4MiB
            free_completed A 4MiB
            """,
            segment("A", "20MiB", "5MiB free", "15MiB 15MiB"),
        )

        assert placements(replay)[0] == (4 * MIB, 5 * MIB, None, 0, 1)

    def test_a_larger_one_is_settled_by_who_comes_to_lie_in_it(self) -> None:
        replay = replayed(
            """
            alloc A+4.5MiB 5MiB
            free_requested A 4MiB
            free_completed A 4MiB
            """,
            segment("A", "20MiB", "4.5MiB free", "5MiB 5MiB", "10.5MiB free"),
        )

        assert placements(replay)[0] == (4 * MIB, 9 * MIB // 2, None, 1, 2)
        assert replay.is_exact, replay.verdict

    def test_and_is_not_guessed_where_nobody_does(self) -> None:
        replay = replayed(
            """
            free_requested A 4MiB
            free_completed A 4MiB
            """,
            segment("A", "20MiB", "20MiB free"),
        )

        assert placements(replay) == [(4 * MIB, None, None, 0, 1)]
        assert replay.unknown_held_count == 1
        assert "1 block sizes are not known" in replay.verdict
        assert replay.peak_allocated == (4 * MIB, None)

    def test_a_free_that_only_completes_was_pending(self) -> None:
        replay = replayed(
            """
            free_completed A 100
            alloc A 200
            free_requested A 200
            """,
            segment("A", "2MiB", "512 pending 200", "2096640 free"),
        )

        assert replay.pending_at_opening == {0}
        assert (replay.peak_active.value, replay.peak_allocated.value) == (512, 512)
        assert replay.final_allocated == 0
        assert replay.final_active == 512

    def test_segments_that_went_were_there_before(self) -> None:
        replay = replayed(
            """
            segment_free B 30MiB
            segment_alloc C 40MiB
            alloc C 40MiB
            """,
            segment("C", "40MiB", "40MiB 40MiB"),
        )

        assert replay.is_exact, replay.verdict
        assert [one.address for one in replay.opening_segments] == [number("B")]
        assert replay.opening_reserved == 30 * MIB
        assert replay.peak_reserved == (40 * MIB, 1)


class TestFaults:
    """What cannot have happened is noted, and the account goes on with what the recording shows."""

    def test_an_address_that_differs(self) -> None:
        replay = replayed(
            """
            segment_alloc A 2MiB
            alloc A 512
            alloc A+1024 512
            alloc A+512 512
            """,
            segment("A", "2MiB", "512 512", "512 512", "512 512", "2095616 free"),
        )

        assert replay.mismatch_count == 1
        first = replay.first_mismatch
        assert first is not None
        assert (first.event_ix, first.kind) == (2, "address")
        assert (first.expected, first.found) == (number("A+512"), number("A+1024"))
        assert replay.placements.is_exact == [True, False, True]
        assert replay.final_difference_count == 0
        assert "event 2" in replay.verdict

    def test_a_block_on_a_live_one_shows_that_a_free_is_missing(self) -> None:
        replay = replayed(
            """
            segment_alloc A 2MiB
            alloc A 512
            alloc A 600
            """,
            segment("A", "2MiB", "1024 600", "2096128 free"),
        )

        assert placements(replay) == [(512, 512, 1, 2, 2), (600, 1024, 2, None, None)]
        assert "free is missing" in replay.verdict
        assert replay.final_allocated == 1024

    def test_a_second_free_shows_that_an_alloc_is_missing(self) -> None:
        replay = replayed(
            """
            segment_alloc A 2MiB
            alloc A 512
            free_requested A 512
            free_completed A 512
            free_requested A 512
            free_completed A 512
            """,
            segment("A", "2MiB", "2MiB free"),
        )

        assert [mismatch.kind for mismatch in replay.mismatches] == ["lost_alloc", "lost_alloc"]
        assert replay.final_active == 0

    def test_a_block_outside_every_segment_counts_as_requested(self) -> None:
        replay = replayed(
            """
            alloc D 5MiB
            alloc D+5MiB 700
            free_requested D 5MiB
            free_completed D 5MiB
            """,
        )

        assert placements(replay) == [(5 * MIB, None, 0, 2, 3), (700, None, 1, None, None)]
        assert replay.placements.segment_address == [None, None]
        assert replay.peak_allocated == (5 * MIB + 700, 1)
        assert replay.final_allocated == 700

    def test_requests_that_are_left_out_are_no_fault(self) -> None:
        """As skip_actions leaves them out."""
        replay = replayed(
            """
            segment_alloc A 2MiB
            alloc A 512
            free_completed A 512
            alloc A 512
            free_completed A 512
            """,
            segment("A", "2MiB", "2MiB free"),
        )

        assert replay.is_exact, replay.verdict
        assert replay.notes == ["the recording leaves out free_requested; blocks count as dropped when freed"]
        assert placements(replay) == [(512, 512, 1, 2, 2), (512, 512, 3, 4, 4)]

    def test_a_segment_released_under_a_live_block(self) -> None:
        replay = replayed(
            """
            segment_alloc A 30MiB
            alloc A 30MiB
            segment_free A 30MiB
            """,
        )

        assert replay.mismatch_count > 0
        assert replay.final_allocated == replay.final_reserved == 0

    def test_a_segment_for_which_a_cached_block_would_have_done(self) -> None:
        replay = replayed(
            """
            segment_alloc A 30MiB
            alloc A 30MiB
            free_requested A 30MiB
            free_completed A 30MiB
            segment_alloc B 30MiB
            alloc B 30MiB
            """,
            segment("A", "30MiB", "30MiB free"),
            segment("B", "30MiB", "30MiB 30MiB"),
        )

        assert [mismatch.kind for mismatch in replay.mismatches] == ["growth"]
        assert replay.final_difference_count == 0
        assert placements(replay)[1] == (30 * MIB, 30 * MIB, 5, None, None)

    def test_events_without_their_fields_are_passed_over_and_counted(self) -> None:
        nothing: list[int | None] = [None] * 6
        actions: list[str | None] = ["alloc", "free_requested", "free_completed", "segment_alloc", "oom", None]
        replay = replay_recording(Events(actions, nothing, nothing, nothing), [], Settings())

        assert replay.is_exact
        assert sum(replay.ignored.values()) == 6

    @pytest.mark.parametrize("address", [-1, 1 << 63, 1 << 70])
    def test_numbers_that_are_no_addresses_do_no_harm(self, address: int) -> None:
        given = Events(["segment_alloc", "alloc", "free_requested"], [address] * 3, [2 * MIB, 512, 512], [0] * 3)
        replay = replay_recording(given, [], Settings())

        assert replay.mismatch_count > 0
        assert replay.final_allocated == 0

    def test_the_file_tells_the_size_of_a_block_that_lives_at_the_end(self) -> None:
        replay = replayed(
            """
            segment_alloc A 20MiB
            alloc A+1MiB 5MiB
            """,
            segment("A", "20MiB", "1MiB free", "5.5MiB 5MiB", "13.5MiB free"),
        )

        assert placements(replay) == [(5 * MIB, 11 * MIB // 2, 1, None, None)]
        assert replay.final_allocated == 11 * MIB // 2


ACTIONS = [
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    None,
]
some_address = st.one_of(st.none(), st.integers(0, 12).map(lambda count: BASE + count * MIB), st.just(-5))
some_size = st.one_of(st.none(), st.sampled_from([0, 1, 512, MIB, 2 * MIB, 5 * MIB, 20 * MIB, -1, 1 << 80]))
some_event = st.tuples(st.sampled_from(ACTIONS), some_address, some_size, st.sampled_from([0, 7, None]))
some_block = st.builds(
    FinalBlock,
    st.integers(0, 20).map(lambda count: BASE + count * 256 * KIB),
    st.sampled_from([512, MIB, 5 * MIB, 0, -1]),
    st.sampled_from([None, 0, 500]),
    st.sampled_from(["inactive", "active_allocated", "active_pending_free", "another"]),
)
some_segment = st.builds(
    FinalSegment,
    st.integers(0, 12).map(lambda count: BASE + count * MIB),
    st.sampled_from([2 * MIB, 20 * MIB, 0, -1]),
    st.sampled_from([0, 7, None]),
    st.sampled_from([None, (0, 0), (1, 0)]),
    st.booleans(),
    st.booleans(),
    st.lists(some_block, max_size=4),
)
some_options = st.sampled_from(
    ["", "expandable_segments:True", "max_split_size_mb:32,garbage_collection_threshold:0.5"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(some_event, max_size=60), st.lists(some_segment, max_size=4), some_options)
def test_whatever_is_given_an_account_comes_out_that_adds_up(
    rows: list[tuple[str | None, int | None, int | None, int | None]], segments: list[FinalSegment], options: str
) -> None:
    columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    replay = replay_recording(Events(*columns), segments, Settings.parse(options))  # pyright: ignore[reportArgumentType]

    table = replay.placements
    sizes = [
        (requested or 0) if held is None else held for requested, held in zip(table.requested, table.held, strict=True)
    ]
    is_live = [dropped is None for dropped in table.free_requested_ix]
    is_active = [death is None for death in table.death_ix]
    allocated = [
        size
        for ticket, (size, live) in enumerate(zip(sizes, is_live, strict=True))
        if live and ticket not in replay.pending_at_opening
    ]
    assert replay.final_allocated == sum(allocated)
    assert replay.final_active == sum(size for size, active in zip(sizes, is_active, strict=True) if active)
    assert replay.final_reserved >= 0
    assert replay.verdict


def test_time_grows_with_the_events_even_where_nothing_agrees() -> None:
    """Every address is wrong; looking for blocks stops being worth it and is given up."""
    shuffle = random.Random(1)  # noqa: S311  (an order, not a secret)
    places = [number("A") + 512 * index for index in range(2000)]
    actions: list[str] = ["segment_alloc"] * 2
    addresses = [number("A"), number("B")]
    sizes = [2 * MIB, 2 * MIB]
    for _ in range(20):
        shuffle.shuffle(places)
        for action in ("alloc", "free_requested", "free_completed"):
            actions += [action] * len(places)
            addresses += places
            sizes += [512] * len(places)
    replay = replay_recording(Events(actions, addresses, sizes, [0] * len(actions)), [], Settings())

    assert replay.mismatch_count > 10_000
    assert replay.final_active == 0
