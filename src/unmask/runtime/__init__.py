"""The machine: devices, the precisions that they compute in, and cores."""
