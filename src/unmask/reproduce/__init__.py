"""Reproduction of the tables of the MDLM paper at small scales."""
