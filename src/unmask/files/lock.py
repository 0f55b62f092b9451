"""Locks of run folders and of the row cache. The system releases them when their process ends."""

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
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FILE = "lock"
_HELD = (errno.EWOULDBLOCK, errno.EACCES)  # errors of a lock that another process holds
_PATIENCE = 1.0  # seconds to wait, since `in_use` of another process takes the lock for a moment


@contextmanager
def locked(run: Path) -> Iterator[None]:
    """Holds the lock of a run folder; makes the folder if needed.

    On leaving, new folders that stayed empty are removed.
    """
    new_folders = [path for path in (run, *run.parents) if not path.exists()]
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
        for path in new_folders:
            with suppress(OSError):  # it is not empty
                path.rmdir()


@contextmanager
def only_user(file: Path) -> Iterator[None]:
    """Holds the lock of an existing file; raises an error if another process holds it."""
    handle = os.open(file, os.O_RDONLY)
    try:
        if not _try_lock(handle):
            raise UnmaskError(f"another process uses {file}: end it, or name another file")
        yield
    finally:
        os.close(handle)


def in_use(run: Path) -> bool:
    """True if a process holds the lock of the run folder."""
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
    """Takes the lock and returns its open file, which holds the lock until it is closed."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        handle = os.open(run / FILE, os.O_RDWR | os.O_CREAT, 0o644)
        if _try_lock(handle):
            if same_file(handle, run / FILE):
                os.truncate(handle, 0)
                os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
                return handle
        elif time.monotonic() > deadline:
            holder = os.read(handle, 200).decode(errors="replace") or "another process"
            os.close(handle)
            raise UnmaskError(
                f"{run} is being trained by {holder}: wait for it, or choose another run folder "
                "(--run)"
            )
        os.close(handle)
        time.sleep(0.05)


def _try_lock(handle: int) -> bool:
    """Takes the lock without waiting. True if that worked, or if the file system has no locks."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in _HELD
    return True


def same_file(handle: int, path: Path) -> bool:
    """True if the open file still has this path;
    the last holder of the lock may have removed it.
    """
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def wait_for_lock(handle: int) -> bool:
    """Waits for the lock of an open file. False if the system or the file system has no locks."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return False
    return True
