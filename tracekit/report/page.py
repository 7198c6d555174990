"""A dataset becomes one page: its story, its ledger, its charts and their rows, in a file that asks for nothing else.

Numbers are made by queries/, pictures by `tracekit.charts`, words by `tracekit.summary`; here they are put in order.
The page itself is page.html, page.css and page.js beside this file.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jinja2
import pyarrow as pa

from tracekit import __version__, dataset, ledger, oom, outfile, summary
from tracekit.charts import CHARTS, Chart, Request, library, render, theme
from tracekit.report import embed
from tracekit.terminal import brief
from tracekit.units import format_mib
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

_CHARTS = tuple(name for name in CHARTS if name not in ("ledger", "compare", "sweep"))
"""The charts of one recording; the ledger is the page's own table, the others need another recording."""

_TOLD_BY_PAGE = ("timeline", "allocations")
"""The charts beside which an account or a stack stands: in the page it is text, which can be read aloud and copied."""

_LONGEST_LINE = 600
"""Characters of a sentence that names something of the recording."""

_HERE = Path(__file__).resolve().parent


def write(warehouse: Warehouse, path: Path, name: str, *, device: int | None = None, force: bool = False) -> None:
    """Write the page, whole or not at all.

    Args:
        warehouse: the dataset.
        path: where the page goes.
        name: what the recording is called.
        device: one device only.
        force: whether a file that is there already may be replaced.

    Raises:
        OutputError: where a file is in the way or cannot be written.
        QueryError: where there is no such device.
    """
    outfile.refuse_existing_file(path, force=force)
    outfile.write_file(path, html(warehouse, name, device).encode(), force=force)


def name_of(source: str) -> str:
    """What a recording is called: the file that a dataset was made from, or the file itself."""
    if source == "-":
        return "standard input"
    path = Path(source)
    is_dataset = (path / dataset.MANIFEST).is_file()
    return str(dataset.read_manifest(path)["source"].get("name", path.name)) if is_dataset else path.name


def html(warehouse: Warehouse, name: str, device: int | None = None) -> str:
    """The page as text: the same dataset and name give the same page.

    Raises:
        QueryError: where there is no such device.
    """
    rows = ledger.summaries(warehouse)
    if device is not None:
        rows = [row for row in rows if row["device"] == ledger.find_moments(warehouse, "peak", device)[0].device]
    devices = [_Device(warehouse, row) for row in rows]
    script = _file("page.js")
    drawing = library.script()
    payload = render.script_json(
        {
            "config": _config(),
            "devices": {one.row["device"]: one.payload() for one in devices},
        }
    )
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.filters["mib"] = format_mib
    return environment.from_string(_file("page.html")).render(
        name=brief(name),
        version=__version__,
        policy=embed.policy([drawing, script]),
        style=_file("page.css"),
        script=script,
        library=drawing,
        payload=payload,
        devices=[one.context() for one in devices],
    )


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


class _Device:
    """What the page says and draws of one device."""

    def __init__(self, warehouse: Warehouse, row: Row) -> None:
        self.row = row
        self.warehouse = warehouse
        (self.peak,) = ledger.find_moments(warehouse, "peak", row["device"])
        request = Request(device=row["device"])
        # one after another, as a warehouse answers one question at a time; meanwhile what is there already is drawn
        with ThreadPoolExecutor(1) as beside:
            asked = {name: beside.submit(_tables, CHARTS[name], warehouse, request) for name in _CHARTS}
            self.drawings = {name: _Drawing(CHARTS[name], row["device"], *asked[name].result()) for name in _CHARTS}

    def context(self) -> Row:
        """What page.html names."""
        account = ledger.lines(self.warehouse, self.peak)
        failed = oom.as_json(self.warehouse, self.row["device"], self.row["oom_count"])
        buckets = self.warehouse.rows("from bucket order by bucket_order")
        return {
            "number": self.row["device"],
            "peak_bytes": self.row["peak_allocated_bytes"],
            "reserved_bytes": self.row["peak_reserved_bytes"],
            "headline": "at the peak" if self.row["event_count"] else "held",
            "story": summary.story(self.row, account, {one["bucket"]: one["meaning"] for one in buckets}, failed),
            "failures": [[brief(line, _LONGEST_LINE) for line in oom.sentences(one)] for one in failed],
            "moment": self._moment(),
            "lines": self._lines(account, buckets),
            "drawings": list(self.drawings.values()),
            "proof": [
                f"replay of the caching allocator: {self.row['verdict']}",
                *summary.basis(*ledger.basis(self.warehouse, self.peak)),
            ],
        }

    def payload(self) -> Row:
        """What page.js reads: the charts with their rows."""
        drawn = {name: one for name, one in self.drawings.items() if not one.why_not}
        return {
            "peak": self.peak.event_ix,
            "charts": {name: one.payload() for name, one in drawn.items()},
        }

    def _lines(self, account: list[Row], buckets: list[Row]) -> list[Row]:
        """The account at the peak, with a line for whatever another moment of the timeline holds something in."""
        entries = {line["bucket"]: line["entry_bytes"] for line in account}
        stacked = self.drawings["timeline"].tables.get("stacked")
        used = entries.keys() | (set() if stacked is None else set(stacked["bucket"].to_pylist()))
        return [
            {
                "bucket": one["bucket"],
                "bytes": entries.get(one["bucket"], 0),
                "meaning": brief(one["meaning"]),
                "colour": theme.colour(one["bucket"]),
            }
            for one in buckets
            if one["bucket"] in used
        ]

    def _moment(self) -> str:
        if self.peak.event_ix < 0:
            return "the opening state" if self.row["event_count"] else "when the snapshot was taken"
        told = f"after event {self.peak.event_ix:,}"
        if self.row["peak_step"] is not None:
            told += f", step {self.row['peak_step']}"
        return told + (f", {self.row['peak_phase']}" if self.row["peak_phase"] else "")


def _tables(chart: Chart, warehouse: Warehouse, request: Request) -> tuple[Mapping[str, pa.Table], str | None]:
    """The rows of a chart, and why there are none."""
    why_not = chart.why_not(warehouse, request)
    return ({}, why_not) if why_not else (chart.data(warehouse, request), None)


class _Drawing:
    """One chart of one device: its rows, its drawing without them, and its words."""

    def __init__(self, chart: Chart, device: int, tables: Mapping[str, pa.Table], why_not: str | None) -> None:
        self.chart = chart
        self.name = chart.name
        self.id = f"{chart.name}-{device}"
        self.why_not = why_not
        self.tables = tables
        self.spec: Row = {} if why_not else render.outline(chart, tables)
        if self.name in _TOLD_BY_PAGE and self.spec:
            self.spec |= self.spec.pop("hconcat")[0]
        self.answer: str = self.spec.pop("description", "")
        title = self.spec.pop("title", {})
        lines: list[str] = title.get("subtitle", []) if isinstance(title, dict) else []
        self.legend = [line[:1].upper() + line[1:] for line in lines]

    def payload(self) -> Row:
        """What page.js draws from."""
        tables = {name: embed.columns(table) for name, table in self.tables.items()}
        return {"spec": self.spec, "tables": tables, "shown": self.chart.table}


def _config() -> Row:
    """The charts' config for both papers at once: where they differ, the browser chooses by the colour scheme."""
    return _both(theme.config(dark=False), theme.config(dark=True)) | {"aria": False}


def _both(light: Any, dark: Any) -> Any:
    if isinstance(light, dict):
        return {key: _both(value, dark[key]) for key, value in light.items()}
    return light if light == dark else f"light-dark({light}, {dark})"
