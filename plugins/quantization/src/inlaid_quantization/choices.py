"""Choices of quantization settings."""

MINMAX, PERCENTILE, ENTROPY, MSE = CALIBRATIONS = ("minmax", "percentile", "entropy", "mse")
ANY, POWER_OF_TWO = SCALES = ("any", "power_of_two")
ASYMMETRIC, SYMMETRIC = ACTIVATIONS = ("asymmetric", "symmetric")
CHANNEL, TENSOR = WEIGHTS = ("channel", "tensor")
FIXED, FLOAT = ARITHMETICS = ("fixed", "float")
FLOAT32, INT8 = BORDERS = ("float32", "int8")
