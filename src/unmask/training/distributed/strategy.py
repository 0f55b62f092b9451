"""The strategy of a configuration: one process, DDP or FSDP2."""

import torch

from unmask.training.distributed.process_group import Group
from unmask.training.distributed.single_process import Plain
from unmask.training.training_config import DistributedConfig


def choose_strategy(
    config: DistributedConfig, group: Group, device: torch.device, precision: str
) -> Plain:
    """The strategy of a configuration; torch's engines are imported by those who use them."""
    if config.strategy == "plain":
        return Plain(group, device, precision)
    from unmask.training.distributed import ddp_fsdp

    kind = ddp_fsdp.Replicated if config.strategy == "ddp" else ddp_fsdp.Sharded
    return kind(group, device, precision)
