"""A user's own bucket rules: a CSV file becomes rows of the table user_rule, or one sentence that names the wrong row.

What a rule means is said in queries/label/; no allocation is looked at here.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from tracekit.catalog import empty_warehouse
from tracekit.errors import QueryError, RulesError
from tracekit.ledger import BESIDE
from tracekit.schema import TABLES
from tracekit.warehouse import Warehouse

COLUMNS = tuple(name for name in TABLES["user_rule"].schema.names if name != "rule_ix")
"""The columns a file may have; rule_id, bucket and one condition are needed."""

_ROLES = ("role", "free_role")
_KNOWN: Mapping[str, tuple[str, ...]] = {
    "phase": ("load", "data", "forward", "backward", "optimizer", "zero_grad", "other"),
    "free_phase": ("load", "data", "forward", "backward", "optimizer", "zero_grad", "other"),
    "lifetime": ("momentary", "later_phase", "later_step", "kept", "unknown"),
    "module_part": ("parameter", "buffer", "copy", "input"),
    "size_like": ("loss", "workspace", "summand", "parameter_set"),
    "origin": ("recorded", "opening"),
    "tensor_role": ("parameter", "buffer", "gradient", "optimizer_state"),
    "evidence": ("identity", "stack", "lifetime", "size"),
}
"""Conditions on one of a few words, with the words: a pattern that matches none of them is a slip of the pen."""

_CONDITIONS = tuple(name for name in COLUMNS if name not in ("rule_id", "bucket", "evidence", "why"))
_STACK = ("role", "free_role", "library", "operator", "module_part", "autograd_node", "frame")
_NAME = re.compile(r"[a-z][a-z0-9_]*")

_Rule = dict[str, str | None]


def read_rules(path: Path) -> pa.Table:
    """Read a CSV file of rules, whose columns are those of the view bucket_rule.

    The rows are rules in their order: of those that hold for an allocation the first wins, and each goes before the
    built-in ones. rule_id, bucket and at least one condition are needed; evidence is told from the conditions where
    it is left out. A bucket that is not among the built-in ones is a new line of the ledger.

    Raises:
        RulesError: where the file or a row cannot be used; it names the line, the rule and the value.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            header = [name.strip() for name in reader.fieldnames or []]
            reader.fieldnames = header
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise RulesError(f"cannot read the rules in {path}: {error}", "give a CSV file in UTF-8") from error
    missing = [name for name in ("rule_id", "bucket") if name not in header]
    unknown = [name for name in header if name not in COLUMNS]
    if missing or unknown:
        what = f"lacks the column {missing[0]}" if missing else f"has an unknown column {unknown[0]!r}"
        raise RulesError(f"{path} {what}", f"columns: {', '.join(COLUMNS)}")
    rules: list[_Rule] = []
    with empty_warehouse() as warehouse:
        taken = {row["rule_id"]: "a built-in rule" for row in warehouse.rows("select rule_id from bucket_rule")}
        roles = {row["role"] for row in warehouse.rows("select distinct role from frame_role")}
        for line, row in rows:
            if None in row:
                raise RulesError(f"{path}, line {line}: it has more values than the header", "quote values with commas")
            rule: _Rule = {name: (value or "").strip() or None for name, value in row.items()}
            problem = _problem(rule, taken, roles, warehouse)
            if problem:
                raise RulesError(f"{path}, line {line} (rule {rule['rule_id']!r}): {problem[0]}", problem[1])
            taken[str(rule["rule_id"])] = f"line {line}"
            rules.append(rule)
    return pa.Table.from_pylist(
        [
            {
                **rule,
                "rule_ix": index,
                "evidence": rule.get("evidence") or _evidence(rule),
                "why": rule.get("why") or f"a rule of the user's own, from {path.name}",
            }
            for index, rule in enumerate(rules)
        ],
        schema=TABLES["user_rule"].schema,
    )


def _problem(rule: _Rule, taken: Mapping[str, str], roles: set[str], warehouse: Warehouse) -> tuple[str, str] | None:
    """What is wrong with a rule, and what to do; None where nothing is."""
    for check in (_name_problem, _word_problem):
        found = check(rule)
        if found:
            return found
    if rule["rule_id"] in taken:
        return f"{taken[str(rule['rule_id'])]} has that name", "give each rule a name of its own"
    for name in _ROLES:
        unknown = [role for role in (rule.get(name) or "").split("|") if role and role not in roles]
        if unknown:
            return f"no frame has the role {unknown[0]!r}", f"roles: {', '.join(sorted(roles))}"
    for name in _CONDITIONS:
        pattern = rule.get(name)
        if pattern is None or name in _ROLES:
            continue
        try:
            warehouse.rows("select regexp_matches('', ?)", [pattern])
        except QueryError as error:
            return f"{name} {pattern!r} is no regular expression: {error.problem}", "see RE2's syntax"
    return None


def _name_problem(rule: _Rule) -> tuple[str, str] | None:
    bucket = rule.get("bucket")
    if not rule.get("rule_id"):
        return "it has no rule_id", "give each rule a name of its own"
    if not bucket:
        return "it names no bucket", "see them with: tracekit schema --name bucket"
    if bucket in BESIDE:
        return f"{bucket!r} holds no allocations", "name another bucket"
    if not _NAME.fullmatch(bucket):
        return f"{bucket!r} is no name for a bucket", "write it in lower case, with _ between words"
    if not any(rule.get(name) for name in _CONDITIONS):
        return "it has no condition, so it would take every allocation", f"conditions: {', '.join(_CONDITIONS)}"
    return None


def _word_problem(rule: _Rule) -> tuple[str, str] | None:
    for name, words in _KNOWN.items():
        pattern = rule.get(name)
        if pattern is None:
            continue
        try:
            matches = any(re.fullmatch(pattern, word) for word in words)
        except re.error as error:
            return f"{name} {pattern!r} is no regular expression: {error}", f"it is matched with: {', '.join(words)}"
        if not matches:
            return f"{name} {pattern!r} matches nothing", f"it is matched with: {', '.join(words)}"
    return None


def _evidence(rule: _Rule) -> str:
    if rule.get("tensor_role"):
        return "identity"
    if any(rule.get(name) for name in _STACK):
        return "stack"
    return "size" if rule.get("size_like") else "lifetime"
