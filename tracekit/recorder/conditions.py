"""The conditions of a run that are known without torch: environment, program, commit, rank.

Only the standard library is used; nothing is changed.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_MATTERS = re.compile(
    r"(PYTORCH|TORCH|TORCHINDUCTOR|TRITON|CUDA|CUBLAS|CUBLASLT|CUDNN|NVIDIA|NCCL|HIP|HSA|ROCR|ROCM)_"
    r"|(OMP_NUM_THREADS|RANK|WORLD_SIZE|LOCAL_RANK|LOCAL_WORLD_SIZE)$"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|KEY", re.IGNORECASE)
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_WORLD = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_LOCAL = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")


def memory_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that change what memory is used, sorted; never one that is named like a secret."""
    return {
        name: value for name, value in sorted(environment.items()) if _MATTERS.match(name) and not _SECRET.search(name)
    }


def find_rank(environment: Mapping[str, str] = os.environ) -> tuple[int, int, int | None]:
    """Rank, world size and local rank, as torchrun, Slurm or MPI tell them; 0, 1 and None for a process of its own."""
    rank, world, local = (_first(environment, names) for names in (_RANK, _WORLD, _LOCAL))
    return rank or 0, world or 1, local


def restart_count(environment: Mapping[str, str] = os.environ) -> int:
    """How often torchrun has started this worker again."""
    return _first(environment, ("TORCHELASTIC_RESTART_COUNT",)) or 0


def describe_program() -> dict[str, Any]:
    """Program, arguments and Python version, and the commit of the checkout that the program lies in."""
    program = Path(sys.argv[0] or ".")
    folder = program.resolve().parent if program.is_file() else Path.cwd()
    commit, is_dirty = find_commit(folder)
    return {
        "program": program.name,
        "arguments": sys.argv[1:],
        "python": platform.python_version(),
        "git_commit": commit,
        "git_is_dirty": is_dirty,
    }


def find_commit(folder: Path) -> tuple[str | None, bool | None]:
    """The commit checked out where `folder` lies, and whether tracked files differ from it; None without git."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit.strip(), bool(_git(folder, "status", "--porcelain", "--untracked-files=no").strip())
    except (OSError, subprocess.SubprocessError):
        return None, None


def _git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout  # noqa: S603


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    for name in names:
        value = environment.get(name, "")
        if value.isdigit():
            return int(value)
    return None
