"""Record a training loop's GPU memory into a run folder, from inside the program that trains.

Imports nothing of the analysis, and torch only when a recording begins: the two meet through the files of a
run folder.

    from tracekit.recorder import Recorder

    with Recorder("my.run") as r:
        with r.phase("load_model"):
            model = Model().cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        r.watch(model=model, optimizer=optimizer)
        for batch in batches:
            with r.phase("data"):
                x, y = (part.cuda() for part in batch)
            with r.phase("forward"):
                loss = criterion(model(x), y)
            with r.phase("backward"):
                loss.backward()
            with r.phase("optimizer"):
                optimizer.step()
            with r.phase("zero_grad"):
                optimizer.zero_grad()
            r.step()

A run folder holds the recording of one process:

snapshot.pickle
    What torch.cuda.memory._snapshot() returned, in protocol 4: the dump to read first. It is one file with
    (or, where the file system has no hard links, a copy of) the newest of the dumps that are named after why,
    when and by whom they were made: `end_step2_rank0_pid4711.pickle`. Why is one of oom, end, exception,
    exit, signal, step, manual. Where the program died of an out-of-memory error, snapshot.pickle is the dump
    made before the stack unwound.
capture.json
    The conditions and the independent witness; its fields are listed in `tracekit.recorder.files`.
tensors.parquet
    The roll: which address was which tensor, at the end of each of the last steps; columns in
    `tracekit.recorder.roll`.
ops.parquet
    With `ops=True`, the operators that ran; columns in `tracekit.recorder.ops`.

Where several processes train together, each has its own folder `rank0`, `rank1` ... in the folder given.
"""

from tracekit.recorder.door import RecordingError
from tracekit.recorder.marks import Mark
from tracekit.recorder.probe import require_recording
from tracekit.recorder.session import Recorder
from tracekit.units import parse_bytes

__all__ = ["Mark", "Recorder", "RecordingError", "parse_bytes", "require_recording"]
