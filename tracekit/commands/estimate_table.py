"""How an estimate is printed: sentences, the ledger at the peak, and the views that are asked for.

The rows come finished from `tracekit.estimate.answer`; only words and the order of lines are decided here.
"""

from __future__ import annotations

from typing import Any

from tracekit import terminal
from tracekit.estimate import answer as answers
from tracekit.estimate.answer import Answer
from tracekit.estimate.rows import presets
from tracekit.terminal import mib, printable

Row = dict[str, Any]


def write(one: Answer, view: str | None, style: str) -> None:
    """Print an estimate, or one view of it: moments, tensors or levers."""
    if style == "json":
        terminal.write_json(answers.as_json(one))
    elif style == "csv":
        terminal.write_rows(_rows(one, view), style)
    elif view == "moments":
        _write_moments(one)
    elif view == "tensors":
        terminal.write_rows(answers.tensor_rows(one.estimate.peak), style)
        print()
        terminal.write_rows(answers.symbol_rows(one.estimate.peak), style)
    elif view == "levers":
        _write_levers(answers.lever_rows(one))
    else:
        _write_account(answers.as_json(one))


def write_presets(style: str) -> None:
    """Print the models that are known by name."""
    rows = [
        {
            "model": shape.name,
            "parameter_count": shape.sizes["P"],
            "layers": shape.layers,
            "width": shape.width,
            "heads": shape.heads,
            "kv_heads": shape.kv_heads,
            "mlp_width": shape.mlp_width,
            "vocabulary": shape.vocabulary,
            "positions": shape.positions,
        }
        for shape in presets().values()
    ]
    terminal.write_rows(rows, style)


def _rows(one: Answer, view: str | None) -> list[Row]:
    if view == "moments":
        return answers.moment_rows(one.estimate)
    if view == "tensors":
        return answers.tensor_rows(one.estimate.peak)
    if view == "levers":
        return answers.lever_rows(one)
    return answers.ledger_rows(one.estimate.peak)


def _write_account(row: Row) -> None:
    print("\n".join(_sentences(row)) + "\n")
    total = row["peak"]["requested_bytes"]
    cells = [_line(line["bucket"], line["requested_bytes"], total, line["allocation_count"]) for line in row["ledger"]]
    cells.append(_line("requested", total, total, row["evidence"][0]["allocation_count"]))
    terminal.write_grid(
        ["bucket", "MiB", "bytes", "share", "allocations"], cells, [False, *[True] * 4], [len(cells) - 1]
    )
    if "limit_bytes" in row:
        print("\n" + "\n".join(_verdict(row)) + "\n")
        _write_levers(row["levers"])
    print("\n" + "\n".join(f"- {printable(text)}" for text in row["assumptions"]))


def _line(name: str, size: int, total: int, count: int) -> list[str]:
    return [name, mib(size), f"{size:,}", f"{100 * size / total:.1f} %", f"{count:,}"]


def _sentences(row: Row) -> list[str]:
    chosen, peak = row["settings"], row["peak"]
    what = f"{printable(row['model'])}: {row['parameter_count']:,} parameters, {chosen['precision']}"
    told = [
        f"{what}, batch {chosen['batch']} x {chosen['sequence']:,} tokens, {chosen['attention']} attention",
        f"peak {mib(peak['requested_bytes'])} MiB of tensors ({peak['requested_bytes']:,} bytes) at: {peak['place']}",
    ]
    if "model_bytes" in row:
        each = row["model_bytes"] / row["parameter_count"]
        told[0] += f", {chosen['optimizer']}"
        told.append(
            f"weights, gradients and optimizer state {mib(row['model_bytes'])} MiB, {each:.4g} bytes a parameter;"
            f" a block saves {mib(row['block_saved_bytes'])} MiB"
        )
    told.append(f"one sequence more adds {mib(row['sequence_bytes'])} MiB")
    return told


def _verdict(row: Row) -> list[str]:
    words = {True: "fits", False: "does not fit", None: "too close to tell without a replay"}
    batch = row["largest_batch"]
    return [
        f"under {mib(row['limit_bytes'])} MiB: {words[row['fits']]}",
        f"largest batch: {batch['surely']:,} surely, {batch['by_tensors']:,} if the allocator wasted nothing",
    ]


def _write_levers(rows: list[Row]) -> None:
    rows = [row for row in rows if row["saved_bytes"] > 0]
    if not rows:
        print("no single change lowers this peak")
        return
    words = {True: "yes", False: "no", None: "?"}
    terminal.write_grid(
        ["lever", "saves MiB", "peak MiB", "fits", "by", "cost"],
        [
            [
                row["lever"],
                mib(row["saved_bytes"]),
                mib(row["peak_bytes"]),
                words[row["fits"]],
                row["option"],
                row["cost"],
            ]
            for row in rows
        ],
        [False, True, True, False, False, False],
    )


def _write_moments(one: Answer) -> None:
    accounts = one.estimate.accounts
    held = [account.by_bucket() for account in accounts]
    buckets = list(dict.fromkeys(row["bucket"] for row in answers.moment_rows(one.estimate)))
    cells = [[bucket, *(mib(lines.get(bucket)) for lines in held)] for bucket in buckets]
    cells.append(["requested", *(mib(account.requested_bytes) for account in accounts)])
    terminal.write_grid(
        ["MiB", *(account.moment for account in accounts)],
        cells,
        [False, *[True] * len(accounts)],
        [len(cells) - 1],
    )
