"""The cores that a process may use, which a container may limit in two ways."""

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Cores by affinity (`taskset`, a cpuset), or fewer where a quota of CPU time is less than these."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cores = os.cpu_count() or 1
    return min(cores, cpu_quota() or cores)


def cpu_quota() -> int | None:
    """The cores that a control group's quota pays for (`docker run --cpus`), rounded up; None without one."""
    quota = _numbers("cpu.max") or _numbers("cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us")
    if quota is None or min(quota) <= 0:
        return None
    return math.ceil(quota[0] / quota[1])


def limit_threads() -> None:
    """Gives torch one thread a core of the quota, of which OpenMP knows nothing; a user's number stands."""
    if quota := cpu_quota():
        os.environ.setdefault("OMP_NUM_THREADS", str(min(quota, available_cores())))


def _numbers(*files: str) -> tuple[int, int] | None:
    """Quota and period, in one file (version 2 of control groups) or in two."""
    try:
        words = [(_CGROUP / file).read_text(encoding="ascii") for file in files]
        quota, period = " ".join(words).split()
        return int(quota), int(period)
    except (OSError, ValueError):  # no such file, or "max"
        return None
