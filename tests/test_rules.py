"""A user's own bucket rules: they go before the built-in ones, may name new buckets, and a wrong row is named."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.test_commands import run
from tracekit import ledger
from tracekit.analysis import open_any
from tracekit.errors import RulesError
from tracekit.rules import COLUMNS, read_rules
from tracekit.warehouse import Warehouse

HEADER = "rule_id,bucket,frame,phase,lifetime,why"
ATTENTION = 'attention,attention_scores,gpt2\\.py:4\\d forward$,forward,,"the scores, the mask and the softmax"'


def written(tmp_path: Path, *rows: str, header: str = HEADER) -> Path:
    path = tmp_path / "my_rules.csv"
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_a_rule_of_ones_own_goes_first_and_its_bucket_is_a_line_of_the_ledger(
    sample_dataset: Path, tmp_path: Path
) -> None:
    rules = read_rules(written(tmp_path, ATTENTION))
    with Warehouse.open(sample_dataset, rules) as warehouse:
        (peak,) = ledger.find_moments(warehouse, "peak")
        lines = {line["bucket"]: line for line in ledger.lines(warehouse, peak)}
        stories = warehouse.rows(
            "select distinct rule_id, rule_why, evidence, bucket_meaning from allocation_story"
            " where bucket = 'attention_scores'"
        )
        assert not any(ledger.failures(warehouse).values())
    assert lines["attention_scores"]["requested_bytes"] > 12 * 384 << 20
    assert sum(line["entry_bytes"] for line in lines.values()) == 19_224_592_384
    assert stories == [
        {
            "rule_id": "attention",
            "rule_why": "the scores, the mask and the softmax",
            "evidence": "stack",
            "bucket_meaning": "the scores, the mask and the softmax",
        }
    ]


def test_of_several_rules_the_first_that_holds_wins(sample_dataset: Path, tmp_path: Path) -> None:
    rules = read_rules(written(tmp_path, "all,mine,,forward|backward,,", "kept,others,,forward,kept,"))
    with Warehouse.open(sample_dataset, rules) as warehouse:
        found = warehouse.rows("select distinct bucket from allocation_bucket where rule_id in ('all', 'kept')")
    assert found == [{"bucket": "mine"}]


def test_analyze_keeps_the_rules_in_the_dataset(tmp_path: Path) -> None:
    from tests.conftest import SAMPLE

    rules = written(tmp_path, ATTENTION)
    done = run("analyze", SAMPLE / "snapshot.pickle.xz", "-o", tmp_path / "out", "--rules", rules, "--format", "json")
    assert "attention_scores" in [line["bucket"] for line in json.loads(done.stdout)["devices"][0]["ledger"]]
    with open_any(tmp_path / "out") as warehouse:
        assert warehouse.rows("select rule_id from user_rule") == [{"rule_id": "attention"}]


@pytest.mark.parametrize("verb", [["sql", "DATASET", "select count(*) as n from bucket_rule where rule_id = 'all'"]])
def test_rules_can_be_tried_without_a_new_dataset(sample_dataset: Path, tmp_path: Path, verb: list[str]) -> None:
    arguments = [str(sample_dataset) if word == "DATASET" else word for word in verb]
    rules = written(tmp_path, "all,mine,,forward,,")
    assert "1" in run(*arguments, "--rules", rules, "--format", "csv").stdout
    assert "1" not in run(*arguments, "--format", "csv").stdout


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (",mine,,forward,,", "line 2 (rule None): it has no rule_id"),
        ("a,,,forward,,", "line 2 (rule 'a'): it names no bucket"),
        ("a,My Bucket,,forward,,", "'My Bucket' is no name for a bucket"),
        ("a,cached,,forward,,", "'cached' holds no allocations"),
        ("a,mine,,,,", "it has no condition, so it would take every allocation"),
        ("a,mine,,fore,,", "phase 'fore' matches nothing"),
        ("a,mine,,forward,for ever,", "lifetime 'for ever' matches nothing"),
        ("a,mine,(,forward,,", "frame '(' is no regular expression"),
        ("a,mine,,(,,", "phase '(' is no regular expression"),
        ("gradient,mine,,forward,,", "a built-in rule has that name"),
        ("a,mine,,forward,,,,,", "line 2: it has more values than the header"),
    ],
)
def test_a_wrong_row_is_named_with_what_is_wrong(tmp_path: Path, row: str, problem: str) -> None:
    with pytest.raises(RulesError) as caught:
        read_rules(written(tmp_path, row))
    assert problem in caught.value.problem
    assert "my_rules.csv" in caught.value.problem
    assert caught.value.remedy


def test_two_rows_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r"line 3 .*line 2 has that name"):
        read_rules(written(tmp_path, "a,mine,,forward,,", "a,mine,,backward,,"))


@pytest.mark.parametrize(
    ("header", "problem"),
    [("rule_id,phase", "lacks the column bucket"), ("rule_id,bucket,colour", "unknown column 'colour'")],
)
def test_a_wrong_header_is_named(tmp_path: Path, header: str, problem: str) -> None:
    with pytest.raises(RulesError, match=problem) as caught:
        read_rules(written(tmp_path, header=header))
    assert caught.value.remedy == f"columns: {', '.join(COLUMNS)}"


def test_an_unknown_role_and_an_absent_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="no frame has the role 'nonsense'"):
        read_rules(written(tmp_path, "a,mine,engine|nonsense", header="rule_id,bucket,role"))
    with pytest.raises(RulesError, match="cannot read the rules"):
        read_rules(tmp_path / "absent.csv")


def test_a_file_without_rows_changes_nothing(sample_dataset: Path, tmp_path: Path) -> None:
    with Warehouse.open(sample_dataset, read_rules(written(tmp_path))) as warehouse:
        assert warehouse.rows("select count(*) as n from user_rule") == [{"n": 0}]
