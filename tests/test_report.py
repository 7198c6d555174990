"""The page as text: what goes into it, what cannot break out of it, and where it is written."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import base64
import hashlib
import json
import pickle
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given as generate
from hypothesis import strategies as some

from tests import hostile
from tests.conftest import SAMPLE
from tests.test_commands import run
from tracekit import report
from tracekit.analysis import open_any
from tracekit.charts import render
from tracekit.report import embed
from tracekit.warehouse import Warehouse

SNAPSHOT = SAMPLE / "snapshot.pickle.xz"

values = some.recursive(
    some.none() | some.booleans() | some.integers() | some.text(),
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
)


class Reader(HTMLParser):
    """The elements of a page, and the text of its scripts and everything else."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.scripts: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.scripts and self.tags[-1] == "script" and self.get_starttag_text() is not None:
            self.scripts[-1] += data
        else:
            self.text += data


def read(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    return reader


@generate(values)
def test_data_cannot_end_their_script_element(value: Any) -> None:
    text = render.script_json(value)
    assert text.isascii()
    assert not set("<>&\0") & set(text)
    assert json.loads(text) == value


def test_half_a_surrogate_pair_and_line_separators_are_escaped() -> None:
    assert render.script_json("\ud800\u2028</script>") == '"\\ud800\\u2028\\u003c/script\\u003e"'


@pytest.mark.parametrize(
    ("given", "column"),
    [
        ([7, 7, 7], {"all": 7}),
        ([7, None, 8], {"values": [7, None, 8]}),
        (["b", "a", "b", None], {"words": ["b", "a", None], "index": [0, 1, 0, 2]}),
        ([], {"values": []}),
        ([[1, 2], [3]], {"values": [[1, 2], [3]]}),
        (["x" * 400, "\0"], {"words": ["x" * 300 + "…", "\\x00"], "index": [0, 1]}),
    ],
)
def test_a_column_is_written_once(given: list[Any], column: dict[str, Any]) -> None:
    table = pa.Table.from_arrays([pa.array(given)], names=["it"])
    assert embed.columns(table) == {"length": len(given), "columns": {"it": column}}


def test_the_policy_lets_these_scripts_run_and_nothing_else() -> None:
    digest = base64.b64encode(hashlib.sha256(b"1 + 1").digest()).decode()
    policy = embed.policy(["1 + 1"])
    assert f"script-src 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe-eval" not in policy


def test_the_page_of_the_sample(sample: Warehouse) -> None:
    page = report.html(sample, "snapshot.pickle.xz")
    assert report.html(sample, "snapshot.pickle.xz") == page
    assert len(page.encode()) < 5_000_000
    told = read(page)
    assert 'title="17,882,019,840 bytes"' in page
    assert "event 3,815 of 7,058, in step 2, backward, when LogSoftmaxBackward0 asked for" in told.text
    data = json.loads(told.scripts[0])
    assert data["devices"]["0"]["peak"] == 3815


def test_nothing_in_the_page_names_another_place(sample: Warehouse) -> None:
    told = read(report.html(sample, "x"))
    assert not {"link", "img", "iframe", "object", "embed", "base", "form"} & set(told.tags)
    assert not {"src", "href"} & {name for name, _ in told.attributes}


def test_hostile_texts_are_escaped_and_cut(tmp_path: Path) -> None:
    snapshot = tmp_path / "x.pickle"
    snapshot.write_bytes(pickle.dumps(hostile.recording(), protocol=4))
    with open_any(snapshot) as warehouse:
        page = report.html(warehouse, "</title><script>document.title='taken'</script>")
    told = read(page)
    assert told.tags.count("script") == 3
    assert "img" not in told.tags
    assert "\0" not in page
    assert "\x1b" not in page
    assert not re.search("x{601}", page)
    assert len(page.encode()) < 2_000_000


def test_report_writes_one_file_and_prints_its_path(sample_dataset: Path, tmp_path: Path) -> None:
    done = run("report", sample_dataset, "-o", "page.html", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "page.html\n")
    assert [one.name for one in tmp_path.iterdir()] == ["page.html"]
    again = run("report", sample_dataset, "-o", "page.html", folder=tmp_path)
    assert again.returncode == 1
    assert "page.html exists already" in again.stderr
    assert run("report", sample_dataset, "-o", "page.html", "--force", folder=tmp_path).returncode == 0


def test_a_report_is_named_after_its_source(tmp_path: Path) -> None:
    (tmp_path / "x.pickle.xz").write_bytes(SNAPSHOT.read_bytes())
    assert run("report", "x.pickle.xz", folder=tmp_path).stdout == "x.html\n"
    assert run("analyze", "x.pickle.xz", "--no-report", folder=tmp_path).returncode == 0
    assert run("report", "x.tracekit", "--force", folder=tmp_path).stdout == "x.html\n"
    assert "<title>x.pickle.xz" in (tmp_path / "x.html").read_text(encoding="utf-8")


def test_a_device_that_is_not_there_leaves_no_file(sample_dataset: Path, tmp_path: Path) -> None:
    done = run("report", sample_dataset, "-o", "page.html", "--device", "3", folder=tmp_path)
    assert done.returncode == 1
    assert "no device 3" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_analyze_leaves_a_report_in_the_dataset(tmp_path: Path) -> None:
    done = run("analyze", SNAPSHOT, "-o", "out", "--format", "json", folder=tmp_path)
    assert json.loads(done.stdout)["report"] == str(Path("out") / "report.html")
    assert (tmp_path / "out" / "report.html").is_file()
    assert done.stderr.endswith(f"report: {Path('out') / 'report.html'}\n")
    none = run("analyze", SNAPSHOT, "-o", "out", "--force", "--no-report", "--format", "json", folder=tmp_path)
    assert json.loads(none.stdout)["report"] is None
    assert not (tmp_path / "out" / "report.html").exists()
    assert run("check", "out", folder=tmp_path).returncode == 0
