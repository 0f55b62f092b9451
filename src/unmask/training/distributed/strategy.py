"""The strategy of a configuration: one process, DDP or FSDP2."""

import torch

from unmask.training.distributed.process_group import ProcessGroup
from unmask.training.distributed.single_process import SingleProcess
from unmask.training.training_config import DistributedConfig


def choose_strategy(
    config: DistributedConfig, group: ProcessGroup, device: torch.device, precision: str
) -> SingleProcess:
    """The strategy that a configuration names.

    DDP and FSDP are imported only if they are used.

    Args:
        config: the section `distributed` of a run configuration.
        group: the process group of the run.
        device: the device of this process.
        precision: fp32 or bf16.
    """
    if config.strategy == "plain":
        return SingleProcess(group, device, precision)
    from unmask.training.distributed import ddp_fsdp

    kind = ddp_fsdp.DDP if config.strategy == "ddp" else ddp_fsdp.FSDP
    return kind(group, device, precision)
