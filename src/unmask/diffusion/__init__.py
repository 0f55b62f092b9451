"""The mathematics of masked diffusion: tensors in, tensors out; no weights, no files."""

from unmask.diffusion.schedule import SCHEDULES, Schedule
from unmask.diffusion.time_sampler import TIME_SAMPLERS, Noise, TimeSampler

__all__ = ["SCHEDULES", "TIME_SAMPLERS", "Noise", "Schedule", "TimeSampler"]
