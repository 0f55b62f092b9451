"""Vectors: Gaussian diffusion of code vectors, its methods, samplers and guidance."""

from unmask.extension import Extension

EXTENSION = Extension(
    __name__,
    {
        "method": {
            "analog_bits": ".methods.analog_bits",
            "diffusion_lm": ".methods.diffusion_lm",
            "plaid": ".methods.plaid",
            "ssd_lm": ".methods.ssd_lm",
        },
        "sampler": {
            "latent_ancestral": ".samplers.latent_samplers",
            "latent_clamped": ".samplers.latent_samplers",
            "latent_ddim": ".samplers.latent_samplers",
            "simplex_blocks": ".samplers.latent_samplers",
        },
        "guidance": {"vectors": ".vector_guidance"},
    },
)
