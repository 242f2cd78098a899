"""Identification of model formats that Inlaid does not import, or whose importer is not installed, with instructions.

Signatures: GGUF (ggml-org/ggml, docs/gguf.md), safetensors (huggingface/safetensors, README), HDF5 (File Format Specification 3.0,
section II.A), ZIP (APPNOTE 6.3.10, section 4.3.7), Python pickles of protocol 2 and newer, TensorFlow's saved_model.proto and
graph.proto, Git LFS pointers (git-lfs, docs/spec.md).
"""

from __future__ import annotations

from pathlib import Path

from inlaid_runtime.records import dataclass

_OPTIMUM = "pip install optimum-onnx, then optimum-cli export onnx --model FOLDER out/"
_TORCH = 'export it from the Python program that defines it: torch.onnx.export(model, inputs, "model.onnx", dynamo=True)'


@dataclass(frozen=True)
class OtherFormat:
    """A format: a description for error messages, and how to get a model that Inlaid imports."""

    description: str
    remedy: str


TORCH = OtherFormat("a PyTorch file", _TORCH)
EXPORTED = OtherFormat(
    "a PyTorch exported program", 'export it to ONNX: torch.onnx.export(torch.export.load(FILE), f="model.onnx", dynamo=True)'
)
SAFETENSORS = OtherFormat(
    "a safetensors file, which holds weights and no graph", f"export the model that they belong to; for Hugging Face: {_OPTIMUM}"
)
GGUF = OtherFormat(
    "a GGUF file, which holds weights and no graph", f"export the model that it was made from; for Hugging Face: {_OPTIMUM}"
)
KERAS = OtherFormat(
    "a Keras model or its weights (HDF5)",
    'export it with Keras 3: keras.models.load_model(FILE).export("model.onnx", format="onnx")',
)
SAVED_MODEL = OtherFormat(
    "a TensorFlow SavedModel", "pip install tf2onnx, then python -m tf2onnx.convert --saved-model FOLDER --output model.onnx"
)
FROZEN_GRAPH = OtherFormat(
    "a TensorFlow graph",
    "pip install tf2onnx, then python -m tf2onnx.convert --graphdef FILE --inputs INPUT:0 --outputs OUTPUT:0 --output model.onnx",
)
OPENVINO = OtherFormat("OpenVINO IR", "use the model that it was converted from: OpenVINO does not export to ONNX")
HUGGING_FACE = OtherFormat("a folder of a Hugging Face model", _OPTIMUM)
CORE_ML = OtherFormat("a Core ML model", "export the model that it was made from")
TENSORRT = OtherFormat("a TensorRT engine, compiled for one GPU", "give the ONNX model that it was built from")
ONNX = OtherFormat("an ONNX model", "pip install inlaid-onnx")
TFLITE = OtherFormat("a TensorFlow Lite model", "pip install inlaid-tflite")
LFS = OtherFormat("a Git LFS pointer, not the file itself", "fetch the file: git lfs pull")
HTML = OtherFormat("a web page", "download the model itself: on GitHub and Hugging Face that is the raw file")
FOLDER = OtherFormat("a folder", "give the model file in it")

_SUFFIXES = {
    ".pt": TORCH, ".pth": TORCH, ".ckpt": TORCH, ".pt2": EXPORTED, ".safetensors": SAFETENSORS, ".gguf": GGUF, ".h5": KERAS,
    ".hdf5": KERAS, ".keras": KERAS, ".pb": FROZEN_GRAPH, ".xml": OPENVINO, ".mlmodel": CORE_ML, ".mlpackage": CORE_ML,
    ".engine": TENSORRT, ".onnx": ONNX, ".plan": TENSORRT, ".tflite": TFLITE,
}  # fmt: skip
_PICKLED = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))


def identify_format(model: Path | bytes, head: bytes) -> OtherFormat | None:
    """Identify the format of a path or of bytes that no frontend accepts. `head` has the first bytes. Returns None if unknown."""
    if isinstance(model, Path) and model.is_dir():
        return _folder(model)
    suffix = model.suffix.lower() if isinstance(model, Path) else ""
    if head.startswith(b"version https://git-lfs"):
        return LFS
    if head.lstrip().lower().startswith((b"<!doctype html", b"<html")):
        return HTML
    if suffix == ".pb" or (isinstance(model, Path) and model.name == "saved_model.pb"):
        return SAVED_MODEL if head.startswith(b"\x08\x01\x12") else FROZEN_GRAPH
    return _SUFFIXES.get(suffix) or _by_content(head)


def _by_content(head: bytes) -> OtherFormat | None:
    if head[4:8] == b"TFL3":
        return TFLITE
    if head.startswith(b"GGUF"):
        return GGUF
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return KERAS
    if head[8:10] == b'{"' and head[6:8] == b"\0\0":
        return SAFETENSORS
    if head.startswith(_PICKLED) or (head.startswith(b"PK\x03\x04") and b"/data.pkl" in head):
        return TORCH
    return OPENVINO if head.lstrip().startswith(b"<?xml") and b"<net " in head else None


def _folder(folder: Path) -> OtherFormat:
    if folder.suffix.lower() in _SUFFIXES:
        return _SUFFIXES[folder.suffix.lower()]
    if (folder / "saved_model.pb").exists():
        return SAVED_MODEL
    models = sorted(path.name for path in folder.iterdir() if path.suffix in (".onnx", ".tflite"))
    if models:
        return OtherFormat("a folder", f"give a file in it: {folder / models[0]}")
    return HUGGING_FACE if (folder / "config.json").exists() else FOLDER
