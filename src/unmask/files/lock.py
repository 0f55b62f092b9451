"""One process at a time in a run folder: a lock that dies with its process."""

import errno
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from unmask.errors import UnmaskError

try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None  # type: ignore[assignment]

FILE = "lock"
_HELD = (errno.EWOULDBLOCK, errno.EACCES)  # which of the two depends on the system
_PATIENCE = 1.0  # seconds: somebody may just be asking whether the folder is in use


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Make the folder if need be and keep others out; what was made and stays empty is removed again."""
    made = [path for path in (run, *run.parents) if not path.exists()]
    try:
        run.mkdir(parents=True, exist_ok=True)
        handle = _take(run)
    except OSError as error:
        raise UnmaskError(
            f"cannot write in {run}: {error.strerror}; choose another run folder (--run)"
        ) from None
    try:
        yield
    finally:
        (run / FILE).unlink(missing_ok=True)
        os.close(handle)
        for path in made:
            with suppress(OSError):  # there is something in it
                path.rmdir()


def in_use(run: Path) -> bool:
    """Whether a process trains there now."""
    if fcntl is None:
        return False
    try:
        handle = os.open(run / FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in _HELD
    finally:
        os.close(handle)
    return False


def _take(run: Path) -> int:
    """The lock, held for as long as the file that this gives is open."""
    until = time.monotonic() + _PATIENCE
    while True:
        handle = os.open(run / FILE, os.O_RDWR | os.O_CREAT, 0o644)
        if _lock(handle):
            if _same(handle, run / FILE):
                os.truncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return handle
        elif time.monotonic() > until:
            holder = os.read(handle, 200).decode(errors="replace") or "another process"
            os.close(handle)
            raise UnmaskError(
                f"{run} is being trained by {holder}: wait for it, or choose another run folder "
                "(--run)"
            )
        os.close(handle)
        time.sleep(0.05)


def _lock(handle: int) -> bool:
    """Takes the lock; True on a file system without locks, too."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD
    return True


def _same(handle: int, path: Path) -> bool:
    """Whether the file is still the one of that name, and not what its last holder removed."""
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _locked(file: int) -> bool:
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return False
    return True


def _same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
