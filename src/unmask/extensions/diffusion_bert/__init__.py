"""DiffusionBERT: masked diffusion in which each token has its own noise schedule."""

from unmask.extension import Extension

EXTENSION = Extension(
    __name__,
    {
        "method": {"diffusion_bert": ".methods.diffusion_bert"},
        "sampler": {"token_schedule": ".samplers.token_schedule"},
    },
)
