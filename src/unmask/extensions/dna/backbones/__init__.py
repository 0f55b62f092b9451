"""Networks with a recurrent state: Mamba, Caduceus and Hyena."""
