"""CPU cores that a process may use, by affinity and by a container's quota."""

import math
import os
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")


def available_cores() -> int:
    """Number of cores: the smaller of CPU affinity (`taskset`, a cpuset) and CPU quota."""
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS, Windows
        cores = os.cpu_count() or 1
    return min(cores, cpu_quota() or cores)


def cpu_quota() -> int | None:
    """CPU quota of the control group (`docker run --cpus`) in cores, rounded up;
    None without one.
    """
    quota = _quota_and_period("cpu.max") or _quota_and_period(
        "cpu/cpu.cfs_quota_us", "cpu/cpu.cfs_period_us"
    )
    if quota is None or min(quota) <= 0:
        return None
    return math.ceil(quota[0] / quota[1])


def limit_threads() -> None:
    """Sets OMP_NUM_THREADS to the CPU quota, unless it is set.
    OpenMP itself does not read the quota.
    """
    if quota := cpu_quota():
        os.environ.setdefault("OMP_NUM_THREADS", str(min(quota, available_cores())))


def _quota_and_period(*files: str) -> tuple[int, int] | None:
    """CPU quota and period, from one file (control groups version 2) or from two (version 1)."""
    try:
        words = [(_CGROUP / file).read_text(encoding="ascii") for file in files]
        quota, period = " ".join(words).split()
        return int(quota), int(period)
    except (OSError, ValueError):  # no such file, or "max"
        return None
