"""HTTP server of models; concurrent requests share network passes."""
