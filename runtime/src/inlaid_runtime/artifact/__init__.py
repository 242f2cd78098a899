"""Artifacts, signatures and plan instructions: the contents of a package. The plan is in `inlaid_runtime.artifact.plan`."""

from inlaid_runtime.artifact.artifact import ALIGNMENT, PORTABLE_C, Artifact, DimSource, KernelInfo, Signature, TensorSpec

__all__ = ["ALIGNMENT", "PORTABLE_C", "Artifact", "DimSource", "KernelInfo", "Signature", "TensorSpec"]
