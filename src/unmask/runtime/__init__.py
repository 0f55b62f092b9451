"""The machine: devices and the precisions that they compute in."""
