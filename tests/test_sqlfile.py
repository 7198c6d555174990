"""The header of a query's file, and the order of a set of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tracekit.sqlfile import creation, load, ordered, parse

FILE = """\
-- One thing,
-- and another.
-- layer: fact
-- grain: device, thing_id
-- reads: block, other
-- stored: yes
--   device: the device
--   thing_id: its number,
--     told in two lines
select 1 as device, 2 as thing_id;
"""


def test_a_header_is_read() -> None:
    file = parse("thing", FILE)
    assert file.doc == "One thing, and another."
    assert (file.layer, file.grain, file.reads, file.is_stored) == (
        "fact",
        ("device", "thing_id"),
        ("block", "other"),
        True,
    )
    assert file.columns == {"device": "the device", "thing_id": "its number, told in two lines"}
    assert creation(file) == "create table thing as select 1 as device, 2 as thing_id"


def test_a_file_with_parameters_is_a_macro() -> None:
    file = parse("thing_at", FILE.replace("-- stored: yes", "-- parameters: of_device, at_event_ix"))
    assert creation(file) == "create macro thing_at(of_device, at_event_ix) as table select 1 as device, 2 as thing_id"


@pytest.mark.parametrize("line", ["-- layer: fact\n", "-- grain: device, thing_id\n", "-- reads: block, other\n"])
def test_a_header_that_lacks_a_field_is_named(line: str) -> None:
    with pytest.raises(ValueError, match=r"thing\.sql lacks"):
        parse("thing", FILE.replace(line, ""))


def named(name: str, *reads: str) -> str:
    return FILE.replace("block, other", ", ".join(reads) or "-").replace("thing", name)


def test_each_comes_after_what_it_reads() -> None:
    files = [parse("c", named("c", "b")), parse("b", named("b", "a", "block")), parse("a", named("a"))]
    assert [file.name for file in ordered(files)] == ["a", "b", "c"]


def test_a_circle_is_named() -> None:
    with pytest.raises(ValueError, match="in a circle"):
        ordered([parse("a", named("a", "b")), parse("b", named("b", "a"))])


def test_a_folder_says_the_layer(tmp_path: Path) -> None:
    (tmp_path / "label").mkdir()
    (tmp_path / "label" / "thing.sql").write_text(FILE, encoding="utf-8")
    with pytest.raises(ValueError, match="says layer fact and lies in label/"):
        load(tmp_path)
