"""The process group of a run: ranks, shared decisions, time limits.

Processes exchange text and numbers through torch's collectives; nothing is pickled.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from unmask.errors import UnmaskError
from unmask.training.training_config import DistributedConfig

T = TypeVar("T")
_UNLIMITED = timedelta(days=7)  # time limit for work of unknown length, such as tokenising
_BROKEN = re.compile(r"gloo|NCCL|[Tt]imed out|timeout|Connection (closed|reset)|Broken pipe")


class ProcessGroup:
    """The processes of a run, seen from process `rank` of `world`.

    In a run of one process every method is trivial.
    """

    def __init__(
        self, rank: int = 0, world: int = 1, store: dist.Store | None = None, timeout: float = 0
    ) -> None:
        self.rank, self.world, self.timeout = rank, world, timeout
        self.local = int(os.environ.get("LOCAL_RANK", 0)) if world > 1 else 0
        self._store = store
        # A second group, on CPUs: control messages never wait for a GPU.
        wait = timedelta(seconds=timeout)
        self._control = dist.new_group(backend="gloo", timeout=wait) if world > 1 else None
        self._turns = 0
        self._since: float | None = None  # start of the running step; None between steps
        self._began = time.monotonic()  # start of the newest step, finished or not
        self._status = lambda: ""
        self._closed = threading.Event()
        if world > 1:
            threading.Thread(target=self._watch, name="watch", daemon=True).start()

    @property
    def main(self) -> bool:
        """True in rank 0, the process that writes files and prints."""
        return self.rank == 0

    def share(self, rows: int) -> range:
        """The rows of a global batch that belong to this process.

        The global batch is the same for any number of processes.
        """
        if rows % self.world:
            raise UnmaskError(
                f"training.batch {rows} does not split over {self.world} processes: choose a multiple"
            )
        mine = rows // self.world
        return range(self.rank * mine, (self.rank + 1) * mine)

    def broadcast(self, make: Callable[[], str]) -> str:
        """The text that the main process makes, broadcast to all processes.

        If the main process fails, it raises its error and the others exit. There is no time limit:
        the hashes of a large checkpoint take long.
        """
        if self.world == 1:
            return make()
        assert self._store is not None
        self._turns += 1
        ready = f"broadcast {self._turns}"
        if not self.main:
            self._store.wait([ready], _UNLIMITED)
            text = self._broadcast("")
            if text.startswith("-"):
                raise SystemExit(2)
            return text[1:]
        try:
            text = make()
        except BaseException:
            self._store.set(ready, "no")
            self._broadcast("-")
            raise
        self._store.set(ready, "yes")
        self._broadcast(f"+{text}")
        return text

    def gather(self, text: str) -> list[str]:
        """The texts of all processes, ordered by rank."""
        if self.world == 1:
            return [text]
        mine = _bytes(text)
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.world)]
        dist.all_gather(sizes, torch.tensor([len(mine)]), group=self._control)
        longest = int(max(sizes))
        padded = torch.zeros(longest, dtype=torch.uint8)
        padded[: len(mine)] = mine
        texts = [torch.zeros_like(padded) for _ in range(self.world)]
        dist.all_gather(texts, padded, group=self._control)
        return [_text(one[: int(size)]) for one, size in zip(texts, sizes, strict=True)]

    def any(self, value: bool) -> bool:
        """True if `value` is true in any process.

        Called between steps, it also detects a process that hangs.
        """
        if self.world == 1:
            return value
        flag = torch.tensor([int(value)])
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=self._control)
        return bool(flag.item())

    def in_turn(self, work: Callable[[], T]) -> T:
        """Runs `work` first in the main process, then in one process of each machine,
        then in all others.

        Later processes find the caches that earlier ones wrote. Returns the result of `work`.
        """
        if self.world == 1:
            return work()
        assert self._store is not None
        self._turns += 1
        wave = 0 if self.main else 1 if self.local == 0 else 2
        machine = os.environ.get("GROUP_RANK", "0")
        done = [f"turn {self._turns}: rank {rank}" for rank in range(self.world)]
        here = f"turn {self._turns}: machine {machine}"
        if wave:
            self._store.wait([done[0]], _UNLIMITED)
        if wave == 2:
            self._store.wait([here], _UNLIMITED)
        result = work()
        if self.local == 0:
            self._store.set(here, "done")
        self._store.set(done[self.rank], "done")
        self._store.wait(done, _UNLIMITED)
        return result

    @contextmanager
    def stepping(self) -> Iterator[None]:
        """Limits the step inside to twice `distributed.timeout`;
        some waits in torch have no limit.
        """
        self._since = self._began = time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def close(self) -> None:
        """Stops the thread that watches the time limit."""
        self._closed.set()

    def _watch(self) -> None:
        """Ends the process when a step exceeds its time limit."""
        while not self._closed.wait(min(1.0, self.timeout / 10)):
            since = self._since
            if since is not None and time.monotonic() - since > 2 * self.timeout:
                error = f"{self._missing('timed out')}; {self._status()}"
                print(f"unmask: error: {error}", file=sys.stderr, flush=True)
                os._exit(2)  # the main thread waits in torch and cannot raise

    @contextmanager
    def watched(self, where: Callable[[], str]) -> Iterator[None]:
        """Turns a collective that hangs or breaks into an error that names the missing ranks.

        Args:
            where: returns the end of the message: the step, and the last good checkpoint.
        """
        self._status = where
        try:
            yield
        except RuntimeError as error:
            if self.world == 1 or not _BROKEN.search(str(error)):
                raise
            raise UnmaskError(f"{self._missing(str(error))}; {where()}") from error

    def _missing(self, error: str) -> str:
        """The first half of the message: the ranks that have not reported the failed collective."""
        assert self._store is not None
        # A timeout in one collective closes connections, and another collective may fail first.
        late = time.monotonic() - self._began >= self.timeout
        late = late or re.search("[Tt]imed out|timeout", error) is not None
        ends = time.monotonic() + (min(5.0, self.timeout) if late else 1.0)
        absent = list(range(self.world))
        try:
            self._store.set(f"alive: rank {self.rank}", "yes")
            while absent and time.monotonic() < ends:
                time.sleep(0.05)
                absent = [r for r in absent if not self._store.check([f"alive: rank {r}"])]
        except RuntimeError:
            absent = [0]  # the store is gone, and the main process holds it
        names = f"rank {', '.join(map(str, absent))} of {self.world}" if absent else "a connection"
        if late:
            return f"{names} did not respond for {self.timeout:g} s (distributed.timeout)"
        return f"{names} has left the run"

    def _broadcast(self, text: str) -> str:
        size = torch.tensor([len(_bytes(text))])
        dist.broadcast(size, 0, group=self._control)
        content = _bytes(text) if self.main else torch.zeros(int(size), dtype=torch.uint8)
        dist.broadcast(content, 0, group=self._control)
        return _text(content)


@contextmanager
def joined(config: DistributedConfig, device: torch.device) -> Iterator[ProcessGroup]:
    """Joins the process group that torchrun started, or makes a group of one process."""
    started = int(os.environ.get("WORLD_SIZE", 1))
    if config.strategy == "plain":
        if started > 1:
            raise UnmaskError(
                f"torchrun started {started} processes, but distributed.strategy is plain: "
                "set --distributed.strategy ddp or fsdp"
            )
        yield ProcessGroup()
        return
    wait = timedelta(seconds=config.timeout)
    store, rank, world = _rendezvous(wait)
    cuda = device.type == "cuda"
    dist.init_process_group(
        backend="cpu:gloo,cuda:nccl" if cuda else "gloo",
        store=store,
        rank=rank,
        world_size=world,
        # NCCL's watchdog ends a process without a message: the control group times out earlier.
        timeout=wait + timedelta(seconds=60) if cuda else wait,
        device_id=device if cuda and device.index is not None else None,
    )
    clean = world == 1
    group = ProcessGroup(rank, world, store, config.timeout)
    try:
        yield group
        clean = True
    finally:
        group.close()
        if clean:  # after an error this call could wait for a dead process
            dist.destroy_process_group()


def _rendezvous(wait: timedelta) -> tuple[dist.Store, int, int]:
    if "RANK" not in os.environ:
        return dist.HashStore(), 0, 1
    try:
        store, rank, world = next(iter(dist.rendezvous("env://", timeout=wait)))
        # torchrun's store survives a restart on one machine, with the addresses of dead processes.
        if os.environ.get("GROUP_WORLD_SIZE") == "1":
            store = dist.PrefixStore(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"), store)
        return store, rank, world
    except (ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise UnmaskError(
            f"the processes did not connect: {reason}; check MASTER_ADDR and MASTER_PORT"
        ) from error


def local_device(device: torch.device) -> torch.device:
    """The GPU of this process on a machine with several, or `device` itself."""
    if device.type != "cuda" or "LOCAL_RANK" not in os.environ:
        return device
    local = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    if local.index >= torch.cuda.device_count():
        raise UnmaskError(
            f"process {local.index} of this machine has no GPU: start {torch.cuda.device_count()} "
            "processes (--nproc-per-node)"
        )
    torch.cuda.set_device(local)
    return local


def _bytes(text: str) -> Tensor:
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def _text(content: Tensor) -> str:
    return bytes(content.tolist()).decode()
