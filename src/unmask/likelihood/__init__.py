"""Likelihoods: bounds, exact likelihoods, their estimators and errors."""
