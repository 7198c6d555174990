"""The package's front door: the version and, lazily, `open`.

Nothing heavy may be imported here, so that `import tracekit.recorder` in a training script costs nothing.
"""

from __future__ import annotations

__version__ = "0.1.0"
