"""Post-training quantization of float models to int8: `inlaid.quantize`."""
