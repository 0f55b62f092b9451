"""Mathematics of uniform tokens: forward process, divergences, and the duality with Gaussian noise."""
