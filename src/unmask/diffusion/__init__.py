"""Mathematics of masked diffusion: schedules, time samplers, forward process and bounds."""

from unmask.diffusion.schedule import SCHEDULES, Schedule
from unmask.diffusion.time_sampler import TIME_SAMPLERS, Noise, TimeSampler

__all__ = ["SCHEDULES", "TIME_SAMPLERS", "Noise", "Schedule", "TimeSampler"]
