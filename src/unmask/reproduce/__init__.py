"""The tables of the MDLM paper, in small."""
