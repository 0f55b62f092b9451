"""Process groups and the strategies of one process, DDP and FSDP2."""
