"""Whether a recording can be made here, found out without importing torch into this process.

A process that has looked at the GPU is no longer the one that a script would have found: it may not fork any more, and
its environment has been read. So another process looks.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from typing import Any

from tracekit.recorder.door import RecordingError, missing_gpu, missing_torch

_LOOK = """
import json, torch
print(json.dumps({
    "version": str(torch.__version__),
    "is_built_for_gpu": torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None,
    "is_available": torch.cuda.is_available(),
}))
"""


def require_recording() -> None:
    """Make sure that torch is installed and sees a GPU; takes as long as importing torch does.

    Raises:
        RecordingError: with a sentence that says what is missing.
    """
    if importlib.util.find_spec("torch") is None:
        raise missing_torch()
    done = subprocess.run([sys.executable, "-c", _LOOK], capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RecordingError(f"torch cannot be imported: {reason}", "look at: python -c 'import torch'")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    missing = missing_gpu(**found)
    if missing:
        raise missing
