"""Trains a tiny MDLM on several processes, as torchrun starts them, but forked to save imports.

`python several_processes.py JOBS.json` runs jobs one after the other. Under torchrun it runs a single job.
"""

import hashlib
import json
import os
import signal
import socket
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # DDP and optimizers import it: import it once, before the forks
from plugins import plugin_file
from torch import Tensor
from training_stand_in import VOCABULARY, TinyLoader

import unmask
from unmask.backbones.backbone import BACKBONES
from unmask.backbones.dit import DiT
from unmask.config.run_config import resolve
from unmask.diffusion.schedule import LogLinear
from unmask.diffusion.time_sampler import Stratified
from unmask.errors import UnmaskError
from unmask.methods.mdlm import MDLM
from unmask.methods.method import METHODS, Method
from unmask.registry import import_plugin
from unmask.training import muon, trainer
from unmask.training.distributed import ddp_fsdp as _  # noqa: F401  # before the forks
from unmask.training.distributed.process_group import ProcessGroup, joined
from unmask.training.signals import Interrupted
from unmask.training.trainer import Trainer, TrainingRun
from unmask.training.training_config import DistributedConfig, TrainingConfig
from unmask.vocabulary import Vocabulary

trainer.draw_curve = lambda run: run  # drawing takes a second per job
muon.native_precisions = lambda device: ("fp32",)  # bf16 would enlarge the rounding of sums

FAULT = "fault"  # a file next to the run folder: the fault has happened


class Rows(TinyLoader):
    """The tiny rows. Stores a hash of each, and fails in the process and at the step of `fault`."""

    def __init__(self, group: ProcessGroup, run: Path, fault: dict[str, Any]) -> None:
        super().__init__()
        self.group, self.run, self.fault = group, run, fault
        self.seen = run.with_name(f"{run.name}-rows-{group.rank}-of-{group.world}.jsonl")

    def batch(self, step: int, part: range) -> tuple[Tensor, Tensor]:
        if (step, self.group.rank) == (self.fault.get("step"), self.fault.get("rank")):
            self.go_wrong()
        x, valid = super().batch(step, part)
        with self.seen.open("a") as file:
            for row, ids, real in zip(part, x, valid, strict=True):
                digest = hashlib.sha256(ids.numpy().tobytes() + real.numpy().tobytes())
                file.write(json.dumps([step, row, digest.hexdigest()]) + "\n")
        return x, valid

    def go_wrong(self) -> None:
        happened = self.run.with_name(f"{self.run.name}-{FAULT}")
        if happened.exists():
            return
        happened.touch()
        match self.fault["kind"]:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "term":
                os.kill(os.getpid(), signal.SIGTERM)
            case "hang":
                time.sleep(3600)


NETWORK = DiT.Config("", 16, 2, 2, dropout=0.1, condition_width=8, gate=0.5)


class Faulty(MDLM):
    """An MDLM whose loss is not a number at one step of one process."""

    def __init__(self, *parts: Any) -> None:
        super().__init__(*parts)
        self.nan: tuple[int, int] | None = None  # step, first row
        self.here: tuple[int, int] | None = None

    def noise(self, stream: Any, valid: Tensor, time_sampler: Any = None) -> Any:
        self.here = (stream.step, stream.rows.start)
        return super().noise(stream, valid, time_sampler)

    def loss_of(self, tensors: Any) -> Any:
        losses = super().loss_of(tensors)
        if self.nan and self.here == self.nan:
            return losses._replace(total=losses.total * torch.nan)
        return losses


def faulty_method(fault: dict[str, Any]) -> Faulty:
    """A tiny MDLM whose loss is not a number at the step and process of the fault."""
    torch.manual_seed(7)
    vocabulary = Vocabulary.over(VOCABULARY - 1)
    backbone = DiT(NETWORK, vocabulary)
    with torch.no_grad():
        backbone.head.weight.normal_(std=0.1)
    method = Faulty(MDLM.Config(), backbone, vocabulary, LogLinear(), Stratified())
    method.nan = tuple(fault["nan"]) if "nan" in fault else None
    return method


def plugin_method(name: str) -> Method:
    """A tiny method with a plugin (a network or a method), or a method of the package by name."""
    torch.manual_seed(7)
    if plugin_file(name).exists():
        import_plugin(str(plugin_file(name)))
    vocabulary = Vocabulary(VOCABULARY, VOCABULARY - 1, label_ids=(0, 1, 2, 3, 4))
    clock = LogLinear(), Stratified()
    if name == "gated_recurrence":
        network: Any = BACKBONES[name]
        return MDLM(MDLM.Config(), network(network.Config(16), vocabulary), vocabulary, *clock)
    kind: Any = METHODS[name]
    timed = replace(NETWORK, time_conditioning=kind.capabilities.noise_level)
    own = {"round_steps": 2, "step_size": 0.2} if kind.capabilities.distills else {}
    return kind(kind.Config(**own), DiT(timed, vocabulary), vocabulary, *clock)


def train(job: dict[str, Any]) -> None:
    """One process of a job."""
    distributed = DistributedConfig(job["strategy"], job.get("timeout", 60.0))
    if job.get("refused"):
        config = resolve({}, [("distributed.strategy", "ddp"), ("training.device", "cpu")])
        unmask.train(config, job["run"], say=said)
        return
    run, fault = Path(job["run"]), job.get("fault", {})
    defaults = {"batch": 8, "lr": 0.01, "warmup": 3, "ema": 0.9, "device": "cpu", "log_every": 1}
    config = TrainingConfig(**{**defaults, **job["options"]})
    method = plugin_method(job["plugin"]) if "plugin" in job else faulty_method(fault)
    with joined(distributed, torch.device("cpu")) as group:
        rows = Rows(group, run, fault)
        fingerprint = {"training": asdict(config), "distributed": asdict(distributed)}
        place = TrainingRun(run, 3, fingerprint, said, group, distributed)
        Trainer(method, rows, config, place).fit()


def said(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def child(job: dict[str, Any]) -> int:
    """Runs one process of a job. Returns the exit code that the command would have."""
    try:
        train(job)
    except UnmaskError as error:
        said(f"rank {os.environ.get('RANK')}: {error}")
        return 2
    except SystemExit as end:
        return int(end.code)
    except Interrupted:
        return 130
    return 0


def forked(job: dict[str, Any]) -> list[int]:
    """The exit codes of a job's processes, by rank. A signal has its negative number."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(job["world"]):
        process = os.fork()
        if process == 0:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": job["world"]}
            names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            if job["strategy"] != "plain":
                os.environ.update({name: str(value) for name, value in names.items()})
            try:
                code = child(job)
            except BaseException:
                import traceback

                traceback.print_exc()
                code = 1
            os._exit(code)
        children.append(process)
    # the process that hangs is ended after the others
    if job.get("fault", {}).get("kind") == "hang":
        others = [p for rank, p in enumerate(children) if rank != job["fault"]["rank"]]
        codes = {p: os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in others}
        stuck = children[job["fault"]["rank"]]
        os.kill(stuck, signal.SIGKILL)
        codes[stuck] = os.waitstatus_to_exitcode(os.waitpid(stuck, 0)[1])
        return [codes[p] for p in children]
    return [os.waitstatus_to_exitcode(os.waitpid(p, 0)[1]) for p in children]


if __name__ == "__main__":
    torch.set_num_threads(1)
    content = json.loads(Path(sys.argv[1]).read_text())
    if "TORCHELASTIC_RUN_ID" in os.environ:
        sys.exit(child(content))
    print(json.dumps([forked(job) for job in content]))
