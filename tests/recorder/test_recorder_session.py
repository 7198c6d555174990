"""The recorder against the stand-in for a GPU's memory (see stand_in.py for what that stands for)."""

from __future__ import annotations

import os
import pickletools
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reading import capture, load, names
from stand_in import KIB, StandIn

from tracekit.recorder import Recorder, RecordingError
from tracekit.recorder import session as session_module

Pretend = Callable[[tuple[int, int]], StandIn]


# Beginning


def test_nothing_is_touched_before_the_program_does(gpu: StandIn, out: Path) -> None:
    with Recorder(out):
        assert not gpu.is_initialized
        assert gpu.history_calls == []
        gpu.allocate()
        assert [event["action"] for event in gpu.events] == ["segment_alloc", "alloc"]


def test_recording_begins_at_once_where_cuda_is_in_use(gpu: StandIn, out: Path) -> None:
    before = gpu.allocate()
    with Recorder(out):
        gpu.free(before)
    assert [event["action"] for event in load(out / "snapshot.pickle")["device_traces"][0]] == [
        "free_requested",
        "free_completed",
    ]
    assert capture(out)["marks"][0]["allocated_bytes"] == KIB


@pytest.mark.parametrize("release", [(2, 4), (2, 13)])
def test_history_is_asked_for_in_this_releases_words(pretend: Pretend, out: Path, release: tuple[int, int]) -> None:
    gpu = pretend(release)
    gpu.initialize()
    with Recorder(out, context="alloc", stacks="python", max_entries=7):
        pass
    first, last = gpu.history_calls
    assert (first["enabled"], first["context"], first["stacks"], first["max_entries"]) == ("all", "alloc", "python", 7)
    assert first.get("clear_history", "unknown") == (True if release == (2, 13) else "unknown")
    assert last["enabled"] is None


def test_a_limit_is_set_to_the_byte(gpu: StandIn, out: Path) -> None:
    with Recorder(out, limit="3000001"):
        gpu.allocate()
    assert int(gpu.fraction * gpu.total) == 3_000_001
    assert capture(out)["recorder"]["limit_bytes"] == 3_000_001


def test_a_limit_that_is_no_size_is_refused(gpu: StandIn, out: Path) -> None:
    with pytest.raises(ValueError, match="not a size"):
        Recorder(out, limit="much")
    assert gpu.history_calls == []


@pytest.mark.parametrize(
    ("is_built", "words"), [(False, "was built without CUDA"), (True, "finds no GPU")], ids=["cpu build", "no gpu"]
)
def test_without_a_gpu_one_sentence_says_what_is_missing(
    torch: Any, monkeypatch: pytest.MonkeyPatch, out: Path, is_built: bool, words: str
) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0" if is_built else None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RecordingError, match=words) as caught, Recorder(out):
        pass
    assert caught.value.remedy
    assert not out.exists()


def test_without_torch_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch, out: Path) -> None:
    def find_nothing(_name: str) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", find_nothing)
    with pytest.raises(RecordingError, match="torch is not installed") as caught:
        Recorder(out)
    assert "pip install" in caught.value.remedy


def test_importing_the_recorder_imports_neither_torch_nor_the_analysis() -> None:
    program = (
        "import sys, tracekit.recorder, tracekit.recorder.script;"
        "print([name for name in ('torch', 'pyarrow', 'duckdb', 'altair', 'tracekit.schema') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# The run folder


def test_a_run_folder_holds_what_it_says(gpu: StandIn, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64")
    monkeypatch.setenv("TORCH_API_TOKEN", "hush")
    with Recorder(out) as r:
        kept = gpu.allocate(2 * KIB)
        r.note(loss=1.5)
        r.step()
    dump = f"end_step1_rank0_pid{os.getpid()}.pickle"
    assert names(out) == sorted([dump, "snapshot.pickle", "capture.json"])  # and a roll, where a model is watched
    assert (out / "snapshot.pickle").samefile(out / dump)
    assert load(out / "snapshot.pickle")["segments"][0]["address"] == kept
    found = capture(out)
    assert found["format"] == "tracekit run"
    assert found["environment"]["PYTORCH_CUDA_ALLOC_CONF"] == "max_split_size_mb:64"
    assert "TORCH_API_TOKEN" not in found["environment"]
    assert found["allocator_settings"]["max_split_size"] == -1
    assert found["devices"][0] | {"free_bytes": 0} == {
        "device": 0,
        "name": "Pretended GPU",
        "capability": [9, 0],
        "multiprocessor_count": 132,
        "total_bytes": gpu.total,
        "free_bytes": 0,
    }
    assert (found["exit"], found["error"], found["step_count"], found["facts"]) == ("end", None, 1, {"loss": 1.5})
    assert found["begin_us"] <= found["marks"][0]["time_us"] <= found["marks"][-1]["time_us"] <= found["end_us"]
    assert [(one["file"], one["reason"], one["event_count"]) for one in found["dumps"]] == [(dump, "end", [2])]
    assert found["dumps"][0]["is_ring_full"] == [False]


def test_the_pickle_is_one_that_torchs_own_viewer_reads(gpu: StandIn, out: Path) -> None:
    with Recorder(out):
        gpu.allocate()
    opcodes = [
        (opcode.name, argument) for opcode, argument, _ in pickletools.genops((out / "snapshot.pickle").read_bytes())
    ]
    assert opcodes[0] == ("PROTO", 4)
    assert not {"GLOBAL", "STACK_GLOBAL", "REDUCE"} & {name for name, _ in opcodes}


def test_a_full_ring_is_said(gpu: StandIn, out: Path) -> None:
    with Recorder(out, max_entries=2):
        gpu.allocate()
    assert capture(out)["dumps"][0]["is_ring_full"] == [True]


def test_each_rank_and_each_restart_has_its_own_folder(
    gpu: StandIn, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with Recorder(out):
        gpu.allocate()
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "3")
    with Recorder(out):
        gpu.allocate()
    assert f"end_step0_rank1_pid{os.getpid()}.pickle" in names(out / "rank1")
    assert f"end_step0_rank1_pid{os.getpid()}.pickle" in names(out / "rank1" / "restart3")
    assert (capture(out / "rank1")["rank"], capture(out / "rank1")["world_size"]) == (1, 2)


def test_nothing_is_overwritten_unasked(gpu: StandIn, out: Path) -> None:
    with Recorder(out):
        gpu.allocate()
    first = (out / "snapshot.pickle").read_bytes()
    with pytest.raises(RecordingError, match="not empty") as caught, Recorder(out):
        pass
    assert "--force" in caught.value.remedy
    assert (out / "snapshot.pickle").read_bytes() == first
    with Recorder(out, force=True):
        gpu.allocate(9 * KIB)
    assert len([name for name in names(out) if name.startswith("end_")]) == 1


def test_force_replaces_recordings_only(gpu: StandIn, out: Path) -> None:
    out.mkdir()
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(RecordingError, match="not a run folder"), Recorder(out, force=True):
        gpu.allocate()
    assert names(out) == ["thesis.tex"]


def test_a_folder_that_cannot_be_made_is_refused(gpu: StandIn, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordingError, match="cannot write"), Recorder(tmp_path / "file" / "a.run"):
        gpu.allocate()


def test_a_dump_is_whole_or_not_there(gpu: StandIn, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Recorder(out) as r:
        gpu.allocate()
        gpu.snapshot_extra = {"late": lambda: None}  # the pickle breaks off at its end
        assert r.dump() is None
        gpu.snapshot_extra = {}
        gpu.snapshot_error = RuntimeError("stoi")  # as torch's unwinder has failed
        assert r.dump() is None
    assert names(out) == ["capture.json"]
    assert len(capture(out)["notes"]) == 3
    assert "stoi" in capsys.readouterr().err


def test_a_program_that_uses_no_gpu_is_told_so(gpu: StandIn, out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Recorder(out):
        pass
    assert names(out) == ["capture.json"]
    assert "never used a CUDA device" in capsys.readouterr().err
    assert gpu.history_calls == []


def test_readings_alone_can_be_taken(gpu: StandIn, out: Path) -> None:
    with Recorder(out, history=False) as r:
        gpu.allocate()
        r.mark("here")
    assert gpu.history_calls == []
    assert "snapshot.pickle" not in names(out)
    assert [mark["label"] for mark in capture(out)["marks"]] == ["begin", "here", "end_of_recording"]


# Ways to end


def test_the_programs_exception_goes_on_its_way(gpu: StandIn, out: Path) -> None:
    def program() -> None:
        with Recorder(out):
            gpu.allocate()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()
    found = capture(out)
    assert (found["exit"], found["error"]["type"]) == ("exception", "ZeroDivisionError")
    assert found["snapshot"].startswith("exception_step0_")


def test_an_exception_is_not_replaced_by_trouble_with_the_dump(gpu: StandIn, out: Path) -> None:
    def program() -> None:
        with Recorder(out):
            gpu.allocate()
            gpu.snapshot_error = OSError("disk full")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        program()


def test_out_of_memory_is_dumped_before_the_stack_unwinds(gpu: StandIn, torch: Any, out: Path) -> None:
    def forward() -> None:
        activation = gpu.allocate(40 * KIB * KIB)
        try:
            gpu.allocate(30 * KIB * KIB)
        finally:
            gpu.free(activation)

    with pytest.raises(torch.cuda.OutOfMemoryError, match="Tried to allocate"), Recorder(out) as r, r.phase("forward"):
        forward()
    snapshot = load(out / "snapshot.pickle")
    assert [block["total_size"] for block in snapshot["segments"]] == [40 * KIB * KIB]
    assert snapshot["device_traces"][0][-1]["action"] == "oom"
    found = capture(out)
    assert found["snapshot"] == found["out_of_memory"][0]["file"] == f"oom_step0_rank0_pid{os.getpid()}.pickle"
    assert found["out_of_memory"][0] | {"time_us": 0} == {
        "device": 0,
        "missing_bytes": 30 * KIB * KIB,
        "total_bytes": gpu.total,
        "free_bytes": 0,
        "time_us": 0,
        "step": 1,
        "phase": "forward",
        "file": found["snapshot"],
    }
    assert found["error"]["type"] == "OutOfMemoryError"
    assert [mark["label"] for mark in found["marks"]] == ["begin", "1.out_of_memory", "end_of_recording"]


def test_running_out_and_going_on_is_not_the_end(gpu: StandIn, torch: Any, out: Path) -> None:
    with Recorder(out):
        for _ in range(5):
            with pytest.raises(torch.cuda.OutOfMemoryError):  # a library that tries again with less
                gpu.allocate(65 * KIB * KIB)
        gpu.allocate()
    found = capture(out)
    assert found["snapshot"].startswith("end_")
    assert [one["file"] is not None for one in found["out_of_memory"]] == [True, True, True, False, False]


def test_a_fatal_one_after_many_is_in_the_last_dump(gpu: StandIn, torch: Any, out: Path) -> None:
    def program() -> None:
        with Recorder(out):
            for _ in range(4):
                with pytest.raises(torch.cuda.OutOfMemoryError):
                    gpu.allocate(65 * KIB * KIB)
            gpu.allocate(66 * KIB * KIB)

    with pytest.raises(torch.cuda.OutOfMemoryError):
        program()
    found = capture(out)
    assert found["snapshot"].startswith("exception_")
    assert load(out / "snapshot.pickle")["device_traces"][0][-1]["size"] == 66 * KIB * KIB


def test_torch_is_given_one_observer_however_many_recordings(gpu: StandIn, torch: Any, tmp_path: Path) -> None:
    for name in "abc":
        with Recorder(tmp_path / name):
            gpu.allocate()
    assert len(gpu.observers) == 1
    with pytest.raises(torch.cuda.OutOfMemoryError):
        gpu.allocate(65 * KIB * KIB)
    assert not list(tmp_path.glob("*/oom_*"))


def test_an_error_while_noting_out_of_memory_does_not_take_its_place(
    gpu: StandIn, torch: Any, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ValueError

    def program() -> None:
        with Recorder(out):
            gpu.allocate()
            monkeypatch.setattr(torch.cuda.memory, "memory_stats", fail)
            gpu.allocate(65 * KIB * KIB)

    with pytest.raises(torch.cuda.OutOfMemoryError):
        program()
    assert capture(out)["snapshot"].startswith("oom_")


def test_a_dump_every_so_many_steps(gpu: StandIn, out: Path) -> None:
    with Recorder(out, every=2) as r:
        for _ in range(5):
            gpu.allocate()
            r.step()
    assert [one["file"].split("_rank")[0] for one in capture(out)["dumps"]] == ["step_step2", "step_step4", "end_step5"]


def test_dumps_of_one_moment_get_names_of_their_own(gpu: StandIn, out: Path) -> None:
    with Recorder(out) as r:
        gpu.allocate()
        first, second = r.dump(), r.dump()
    assert first is not None
    assert second is not None
    assert second.name == first.name.replace(".pickle", "_2.pickle")


# Signals and exits


def test_a_signal_makes_a_dump_and_the_program_goes_on(gpu: StandIn, out: Path) -> None:
    before = signal.getsignal(signal.SIGUSR1)
    with Recorder(out):
        gpu.allocate()
        signal.raise_signal(signal.SIGUSR1)
        gpu.allocate()
    assert [one["reason"] for one in capture(out)["dumps"]] == ["signal", "end"]
    assert signal.getsignal(signal.SIGUSR1) == before


def test_the_programs_own_handler_still_runs(gpu: StandIn, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _frame: heard.append(number))
    try:
        with Recorder(out):
            gpu.allocate()
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == [signal.SIGTERM]
    monkeypatch.undo()


def test_a_signal_in_the_middle_of_a_dump_waits_for_its_end(gpu: StandIn, out: Path) -> None:
    asked = iter([True])

    def interrupt() -> None:
        if next(asked, False):
            signal.raise_signal(signal.SIGUSR1)

    with Recorder(out) as r:
        gpu.allocate()
        gpu.on_snapshot = interrupt
        r.dump()
    assert [one["reason"] for one in capture(out)["dumps"]] == ["manual", "signal", "end"]


def run_elsewhere(out: Path, program: str) -> subprocess.CompletedProcess[str]:
    here = Path(__file__).parent
    command = [sys.executable, "-W", "ignore", str(here / "stand_in.py"), str(out), program]
    environment = os.environ | {"PYTHONPATH": str(here.parents[1]), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.usefixtures("torch")
def test_a_program_that_is_told_to_stop_stops_as_it_would_have(out: Path) -> None:
    done = run_elsewhere(
        out,
        "import os, signal\nwith recorder:\n gpu.allocate()\n os.kill(os.getpid(), signal.SIGTERM)\n gpu.allocate()",
    )
    assert done.returncode == -signal.SIGTERM
    assert [one["reason"] for one in capture(out)["dumps"]] == ["signal"]
    assert capture(out)["exit"] == "signal"


@pytest.mark.usefixtures("torch")
def test_without_a_with_block_the_interpreters_end_is_the_end(out: Path) -> None:
    done = run_elsewhere(out, "recorder.start(); gpu.allocate(); raise SystemExit(7)")
    assert done.returncode == 7
    assert [one["reason"] for one in capture(out)["dumps"]] == ["exit"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_the_recording_alone(gpu: StandIn, out: Path) -> None:
    with Recorder(out) as r:
        gpu.allocate()
        child = os.fork()
        if child == 0:  # as a data loader's worker does
            r.step()
            r.stop()
            os._exit(0)
        os.waitpid(child, 0)
        gpu.allocate()
    assert [one["event_count"] for one in capture(out)["dumps"]] == [[4]]


# Phases, steps, marks


def train(gpu: StandIn, r: Recorder, steps: int = 2) -> None:
    with r.phase("load_model"):
        gpu.allocate(4 * KIB)
    for _ in range(steps):
        with r.phase("forward"):
            activation = gpu.allocate(KIB)
        with r.phase("backward"):
            gradient = gpu.allocate(4 * KIB)
            gpu.free(activation)
        with r.phase("zero_grad"):
            gpu.free(gradient)
        r.step()


def test_marks_are_the_counters_at_named_points(gpu: StandIn, out: Path) -> None:
    with Recorder(out, reset_peaks=True) as r:
        train(gpu, r)
    marks = capture(out)["marks"]
    assert [(mark["label"], mark["step"], mark["allocated_bytes"] // KIB) for mark in marks] == [
        ("begin", None, 0),
        ("load_model", None, 4),
        ("1.forward", 1, 5),
        ("1.backward", 1, 8),
        ("1.zero_grad", 1, 4),
        ("1.end", 1, 4),
        ("2.forward", 2, 5),
        ("2.backward", 2, 8),
        ("2.zero_grad", 2, 4),
        ("2.end", 2, 4),
        ("end_of_recording", None, 4),
    ]
    assert [mark["peak_allocated_bytes"] // KIB for mark in marks] == [0, 4, 5, 9, 9, 9, 5, 9, 9, 9, 9]
    assert [mark["peak_since_us"] is None for mark in marks[:3]] == [True, True, False]
    assert marks[2]["stats"]["allocated_bytes.all.peak"] == 5 * KIB


def test_a_mark_says_after_which_event_it_was_taken(gpu: StandIn, out: Path) -> None:
    gpu.allocate()
    with Recorder(out) as r:
        train(gpu, r)
    found, events = capture(out), load(out / "snapshot.pickle")["device_traces"][0]
    begin = found["marks"][0]
    for mark in found["marks"]:
        counts = {"alloc": 0, "free_requested": 0, "segment_alloc": 0}
        live = begin["allocated_bytes"]
        for event in events:
            if mark["time_us"] < event["time_us"]:
                break
            counts[event["action"]] = counts.get(event["action"], 0) + 1
            live += {"alloc": 1, "free_requested": -1}.get(event["action"], 0) * event["size"]
        assert live == mark["allocated_bytes"], mark["label"]
        assert counts["alloc"] == mark["alloc_count"] - begin["alloc_count"]
        assert counts["free_requested"] == mark["free_count"] - begin["free_count"]
        assert counts["segment_alloc"] == mark["segment_alloc_count"] - begin["segment_alloc_count"]


def test_phases_and_steps_become_ranges(gpu: StandIn, torch: Any, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[str] = []

    class Range:
        def __init__(self, name: str) -> None:
            self.name = name

        def __enter__(self) -> None:
            ranges.append(f"+{self.name}")

        def __exit__(self, *_: object) -> None:
            ranges.append(f"-{self.name}")

    monkeypatch.setattr(torch.profiler, "record_function", Range)
    with Recorder(out) as r:
        train(gpu, r, steps=1)
    assert " ".join(ranges) == (
        "+load_model -load_model +step#1 +forward -forward +backward -backward +zero_grad -zero_grad -step#1"
    )


def test_a_phase_that_fails_leaves_no_mark_and_no_trace(gpu: StandIn, out: Path) -> None:
    with Recorder(out) as r:
        gpu.allocate()
        with pytest.raises(KeyError), r.phase("forward"):
            raise KeyError
        r.mark("after")
        r.dump()
    found = capture(out)
    assert [mark["label"] for mark in found["marks"]] == ["begin", "1.after", "end_of_recording"]
    assert found["dumps"][0]["phase"] is None


def test_what_the_recorder_holds_is_bounded(gpu: StandIn, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_MAX_MARKS", 2_000)
    with Recorder(out) as r:
        gpu.allocate()
        for _ in range(2_100):
            r.step()
    found = capture(out)
    assert found["marks"][0]["label"] == "begin"  # what the others are counted from stays
    assert len(found["marks"]) == 1 + 2_000
    assert found["dropped_mark_count"] == 2_102 - 2_001
    assert found["dropped_roll_count"] == 2_100 - 64
