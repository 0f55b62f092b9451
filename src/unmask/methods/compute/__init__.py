"""Fast implementations for methods: chunked loss, CUDA graphs, cached decoding."""
