"""Mathematics of Gaussian diffusion, and the denoisers of its samplers."""
