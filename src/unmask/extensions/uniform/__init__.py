"""Uniform tokens in place of masks: methods whose samplers change every token, and their samplers."""

from unmask.extension import Extension

EXTENSION = Extension(
    __name__,
    {
        "method": {
            "d3pm_uniform": ".methods.d3pm_uniform",
            "duo": ".methods.duo",
            "duo_distilled": ".methods.duo",
            "sundae": ".methods.sundae",
            "udlm": ".methods.udlm",
        },
        "sampler": {
            "uniform_ancestral": ".samplers.uniform_samplers",
            "unrolled": ".samplers.uniform_samplers",
        },
    },
)
