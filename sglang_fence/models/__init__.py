"""Models: any Llama-style checkpoint through Transformers, run layer by layer, and the embedded default."""
