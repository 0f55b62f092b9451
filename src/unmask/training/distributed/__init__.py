"""One process or several: process groups, DDP and FSDP2."""
