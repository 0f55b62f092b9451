"""Gaussian diffusion of code vectors, and the methods that configure it."""
