"""Free memory of the machine, and a check before large files are read."""

from pathlib import Path

from unmask.errors import UnmaskError

_FACTS = Path("/proc/meminfo")  # of Linux
_GIB = 2**30


def free_memory() -> int | None:
    """Bytes of memory that a process can take without swapping.

    Returns:
        The number of bytes; None on a system that does not tell.
    """
    try:
        lines = _FACTS.read_text("ascii").splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return 1024 * int(found[0]) if found else None


def check_memory(size: int, where: str) -> None:
    """Raises an error if weights do not fit into the free memory.

    Args:
        size: bytes of the weights in fp32.
        where: the origin of the weights.
    """
    free = free_memory()
    if free is not None and size > free:
        raise UnmaskError(
            f"{where} takes {size / _GIB:.1f} GiB of memory in fp32, and {free / _GIB:.1f} GiB are free: "
            "use a machine with more memory, or a smaller model"
        )
