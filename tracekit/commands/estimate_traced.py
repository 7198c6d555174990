"""How a traced estimate is printed: one as an account, several as a table, and what each rests on.

The rows come finished from `tracekit.estimate.traced.answer`; only words are decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tracekit import analysis, ledger, terminal, units, what_if
from tracekit.allocator.settings import Settings
from tracekit.commands import account
from tracekit.estimate.traced import answer, cards, kernel, script
from tracekit.estimate.traced.answer import Conditions, Estimate
from tracekit.place import place
from tracekit.schema import TABLES
from tracekit.terminal import mib, printable
from tracekit.warehouse import Warehouse

Row = dict[str, Any]


def write(
    model: str,
    given: Mapping[str, Sequence[script.Value]],
    *,
    limit: str | None,
    card_name: str,
    workspace: str | None,
    settings: Sequence[str],
    step_count: int,
    output: Path | None,
    force: bool,
    style: str,
    quiet: bool,
) -> None:
    """Trace what was asked for and print it; see the verb's help for each argument."""
    chosen = script.combinations(given)
    varied = [name for name, values in given.items() if len(values) > 1]
    if output is not None and len(chosen) > 1:
        raise click.UsageError("--output takes one estimate")
    conditions = _conditions(limit, card_name, workspace, settings, step_count)
    with terminal.progress(quiet=quiet) as tell:
        build = answer.load(model)
        estimates = [answer.estimate(build, arguments, conditions, tell) for arguments in chosen]
        best: Estimate | None = None
        is_searched = (
            conditions.limit is not None and len(varied) == 1 and all(_is_count(one, varied[0]) for one in estimates)
        )
        if is_searched:
            best = answer.largest(
                estimates,
                varied[0],
                lambda value: answer.estimate(build, {**chosen[0], varied[0]: value}, conditions, tell),
            )
        if output is not None:
            about = {"estimated": model, "arguments": dict(chosen[0]), "card": card_name, "notes": notes(estimates[0])}
            analysis.write_dataset(output, estimates[0].tables(), about, force=force, tell=tell)
    if len(estimates) == 1:
        _write_one(model, estimates[0], style)
    else:
        _write_several(estimates, varied, best, is_searched=is_searched, style=style)
    if output is not None and not quiet:
        terminal.tell(f"dataset: {output}")


def _conditions(
    limit: str | None, card_name: str, workspace: str | None, settings: Sequence[str], step_count: int
) -> Conditions:
    try:
        limit_bytes = None if limit is None else units.parse_bytes(limit)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--limit") from error
    chosen = cards.card(card_name)
    return Conditions(
        chosen,
        cards.parse_workspace(workspace) if workspace else chosen.cublas_workspace,
        what_if.chosen_settings(Settings(), ",".join(settings)),
        limit_bytes,
        step_count,
    )


def _is_count(one: Estimate, name: str) -> bool:
    value = one.arguments[name]
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def margin(one: Estimate) -> str:
    """How far estimates of this kind were from what was measured, in a sentence; asserted in tests/estimate/."""
    if one.tape.unknown:
        return "where an operator's memory is not known, first estimates of new kinds of models were off by up to 29 %"
    if any("convolution" in operator for operator in one.tape.approximate):
        return "four recorded steps with convolutions were within 1 % allocated and 5 % reserved"
    if one.tape.approximate:
        return "no recording of these operators was at hand"
    return "ten recorded steps without convolutions were within 0.3 % allocated, and lay in the span of reserved"


def notes(one: Estimate) -> list[str]:
    """What an estimate rests on, and what it could not see, in sentences."""
    conditions = one.conditions
    card = conditions.card
    kernels = f"kernels as torch 2.11 runs them on a GPU like {card.name}, with {card.processors} multiprocessors"
    told = [
        f"{kernels}, and cuBLAS workspaces of {mib(conditions.workspace_bytes)} MiB",
        f"{conditions.step_count} training steps were traced, without data: a branch on data was not seen",
        "what lies outside of the allocator, the CUDA context and NCCL's buffers, comes on top",
    ]
    told += [f"margin: {margin(one)}", *one.tape.assumed]
    told += [
        f"{operator}: {kernel.APPROXIMATE[operator.split('.')[1]]} ({count:,} calls)"
        for operator, count in one.tape.approximate.most_common()
    ]
    told += [
        f"{operator}: what it takes besides its outputs is not known ({count:,} calls)"
        for operator, count in one.tape.unknown.most_common()
    ]
    return told


def _write_one(model: str, one: Estimate, style: str) -> None:
    raw = one.tables()
    tables = raw | place(raw) | {"user_rule": TABLES["user_rule"].schema.empty_table()}
    row = one.as_row()
    with Warehouse(tables) as warehouse:
        if style == "table":
            account.write_summary(warehouse, model)
            print("\n" + "\n".join(_sentences(one, row)))
            return
        (told,) = ledger.as_json(warehouse)
    if style == "json":
        terminal.write_json({**told, **row, "assumptions": notes(one)})
    else:
        lines: list[Row] = told["ledger"]
        terminal.write_rows([{**row, **line} for line in lines], style)


def _sentences(one: Estimate, row: Row) -> list[str]:
    told: list[str] = []
    if row["limit_bytes"] is not None:
        told.append(f"under a limit of {mib(row['limit_bytes'])} MiB: {_verdict(row)}")
    told.append(
        f"allocated {_span(row, 'allocated')} MiB, reserved {_span(row, 'reserved')} MiB at most,"
        f" in {row['layout_count']} arrangements of segments"
    )
    return told + [f"- {printable(note)}" for note in notes(one)]


def _span(row: Row, name: str) -> str:
    low, high = mib(row[f"lowest_{name}_bytes"]), mib(row[f"highest_{name}_bytes"])
    return low if low == high else f"{low} to {high}"


def _verdict(row: Row) -> str:
    if row["fit_count"] in (0, row["layout_count"]):
        return "fits" if row["fits"] else "does not fit"
    return f"fits in {row['fit_count']} of {row['layout_count']} arrangements of segments"


def _write_several(
    estimates: Sequence[Estimate], varied: Sequence[str], best: Estimate | None, *, is_searched: bool, style: str
) -> None:
    ordered = sorted(estimates, key=lambda one: tuple(str(one.arguments[name]).zfill(12) for name in varied))
    rows = [one.as_row() for one in ordered]
    largest = None if best is None else best.arguments[varied[0]]
    if style == "json":
        terminal.write_json(
            {
                "variable": varied[0] if len(varied) == 1 else list(varied),
                **({"largest": largest} if is_searched else {}),
                "points": rows,
                "assumptions": notes(ordered[-1]),
            }
        )
    elif style == "csv":
        terminal.write_rows(rows, style)
    else:
        cells = [
            [
                *(str(row[name]) for name in varied),
                mib(row["peak_allocated_bytes"]),
                mib(row["peak_reserved_bytes"]),
                _span(row, "reserved"),
                "" if row["limit_bytes"] is None else _verdict(row),
            ]
            for row in rows
        ]
        terminal.write_grid(
            [*varied, "allocated MiB", "reserved MiB", "as segments fall", ""],
            cells,
            [True] * (len(varied) + 3) + [False],
        )
        if is_searched:
            limit = mib(rows[0]["limit_bytes"])
            said = f"the largest {varied[0]} that fits {limit} MiB is {largest}"
            print("\n" + (said if best is not None else f"not even {varied[0]} 1 fits {limit} MiB"))
        print("\n" + "\n".join(f"- {printable(note)}" for note in notes(ordered[-1])))
