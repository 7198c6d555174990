"""`tracekit estimate` as a person and a script meet it."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from tracekit.cli import main
from tracekit.estimate.ledger import BUCKETS
from tracekit.estimate.rows import optimizers, precisions
from tracekit.units import GIB, MIB
from tracekit.warehouse import Warehouse

SEED = ["estimate", "gpt2", "--attention", "eager"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> tuple[str, str]:
    with pytest.raises(SystemExit) as left:
        main(list(arguments))
    out, err = capsys.readouterr()
    assert left.value.code == status, err
    return out, err


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    return json.loads(run(capsys, *arguments, "--format", "json")[0])


def test_the_account_of_the_first_document(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, *SEED)
    assert "peak 17,049.1 MiB of tensors (17,877,285,964 bytes) at: loss" in out
    assert "1,898.8 MiB, 16 bytes a parameter; a block saves 769.1 MiB" in out
    lines = [line.split() for line in out.splitlines()]
    assert ["activation", "9,277.6", "9,728,237,568", "54.4", "%", "197"] in lines


def test_json_has_the_fields_of_a_device_and_what_only_an_estimate_has(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, *SEED, "--limit", "45440MiB")
    assert told["peak"]["requested_bytes"] == sum(line["requested_bytes"] for line in told["ledger"]) == 17_877_285_964
    assert (told["peak"]["phase"], told["peak"]["moment"]) == ("backward", "loss")
    # what a sum of tensors cannot say is not said
    assert told["peak"]["reserved_bytes"] is told["peak"]["allocated_bytes"] is told["peak_reserved_bytes"] is None
    assert {"allocated_bytes", "held_bytes", "reserved_bytes", "event_count"} == told["not_known"].keys()
    assert told["peak_bytes"] == told["peak"]["requested_bytes"]
    assert told["block_saved_bytes"] == 769.125 * MIB
    assert told["model_bytes"] == 16 * told["parameter_count"]
    assert told["fits"] is True
    assert told["largest_batch"] == {"surely": 17, "by_tensors": 22}
    assert any("reserved" in text for text in told["assumptions"])
    assert "fits" not in answer(capsys, *SEED)


@pytest.mark.parametrize(("limit", "fits"), [("30GiB", True), ("18GiB", None), ("17049MiB", False)])
def test_fits_has_three_answers(capsys: pytest.CaptureFixture[str], limit: str, fits: bool | None) -> None:
    assert answer(capsys, *SEED, "--limit", limit)["fits"] is fits


def test_levers_are_recomputed(capsys: pytest.CaptureFixture[str]) -> None:
    now = answer(capsys, *SEED, "--limit", "16GiB")
    levers = {row["lever"]: row for row in now["levers"]}
    then = answer(capsys, *SEED, "--checkpoint")
    assert levers["checkpointing"]["peak_bytes"] == then["peak"]["requested_bytes"]
    assert levers["checkpointing"]["saved_bytes"] == now["peak"]["requested_bytes"] - then["peak"]["requested_bytes"]
    assert levers["checkpointing"]["fits"] is True
    assert all(row["cost"] for row in levers.values())
    fused = answer(capsys, "estimate", "gpt2", "--limit", "1GiB")
    assert "fused attention" not in {row["lever"] for row in fused["levers"]}


def test_moments_and_tensors_add_up_to_the_ledger(capsys: pytest.CaptureFixture[str]) -> None:
    moments = list(csv.DictReader(io.StringIO(run(capsys, *SEED, "--moments", "--format", "csv")[0])))
    assert len({row["moment"] for row in moments}) == 9
    at_loss = sum(int(row["requested_bytes"]) for row in moments if row["moment"] == "loss")
    tensors = list(csv.DictReader(io.StringIO(run(capsys, *SEED, "--tensors", "--format", "csv")[0])))
    assert at_loss == sum(int(row["requested_bytes"]) for row in tensors) == 17_877_285_964
    assert {"4 · B·H·T² · L"} == {row["formula"] for row in tensors if row["tensor"] == "attention probabilities"}
    assert "769" not in run(capsys, *SEED, "--moments")[0].splitlines()[0]


def test_a_card_gives_its_memory_and_its_workspaces(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, "estimate", "gpt2", "--card", "H100")
    assert (told["limit_bytes"], told["settings"]["workspace_bytes"]) == (81_559 * MIB, 32 * MIB)
    assert answer(capsys, "estimate", "gpt2", "--card", "h100", "--limit", "1GiB")["limit_bytes"] == GIB


def test_adapters_sharing_and_generation(capsys: pytest.CaptureFixture[str]) -> None:
    model = ["estimate", "llama-3.1-8b", "--precision", "bf16", "--batch", "1", "--sequence", "2048"]
    whole = answer(capsys, *model)
    adapted = answer(capsys, *model, "--lora", "16", "--lora-on", "all")
    assert adapted["peak"]["requested_bytes"] < whole["peak"]["requested_bytes"]
    assert (adapted["settings"]["lora"], adapted["settings"]["lora_on"]) == (16, "all")
    shared = answer(capsys, *model, "--zero", "3", "--ranks", "8")
    assert "communication" in {line["bucket"] for line in shared["ledger"]}
    generated = answer(capsys, *model, "--inference")
    cache = {line["bucket"]: line["requested_bytes"] for line in generated["ledger"]}["kv_cache"]
    assert cache == 2 * 32 * 2048 * 8 * 128 * 2


def test_presets_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    names = [row["model"] for row in csv.DictReader(io.StringIO(run(capsys, "estimate", "--format", "csv")[0]))]
    assert names[:2] == ["gpt2", "gpt2-medium"]
    assert len(names) == 20


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["gpt7"], 1, "there is no model 'gpt7'"),
        (["gpt2", "--precision", "fp4"], 1, "there is no precision 'fp4'"),
        (["gpt2", "--optimizer", "x"], 1, "there is no optimizer 'x'"),
        (["gpt2", "--card", "x"], 1, "'x' is not a card"),
        (["gpt2", "--sequence", "2048"], 1, "learned positions for 1,024 tokens"),
        (["gpt2", "--batch", "0"], 2, "--batch"),
        (["gpt2", "--limit", "much"], 2, "is not a size"),
        (["gpt2", "--workspace", "much"], 2, "is not a size"),
        (["gpt2", "--ranks", "2"], 2, "--zero"),
        (["gpt2", "--nonsense"], 2, "--nonsense"),
    ],
)
def test_what_cannot_be_used(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, told: str) -> None:
    out, err = run(capsys, "estimate", *arguments, status=status)
    assert told in err
    assert not out


def test_help_names_every_precision_and_optimizer(capsys: pytest.CaptureFixture[str]) -> None:
    told = "".join(run(capsys, "estimate", "--help")[0].split())  # however the lines are broken
    assert [name for name in (*precisions(), *optimizers()) if name not in told] == []


def test_nothing_heavy_is_imported() -> None:
    script = (
        "import sys; from tracekit.cli import main\n"
        "try: main(['estimate', 'gpt2', '--limit', '16GiB'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'duckdb', 'pyarrow', 'altair', 'torch'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stderr == "[]\n"


def test_the_buckets_are_the_projects(given: Callable[..., Warehouse]) -> None:
    with given() as warehouse:
        known = [row["bucket"] for row in warehouse.rows("select bucket from bucket order by bucket_order")]
    assert [bucket for bucket in known if bucket in BUCKETS] == list(BUCKETS)
