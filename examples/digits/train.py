"""Train the network of digits.onnx with numpy, and write it and the held-out images to this folder.

    python examples/digits/train.py path/to/digits.csv.gz

The images are the UCI machine learning repository's "Optical Recognition of Handwritten Digits" in scikit-learn's copy,
`sklearn/datasets/data/digits.csv.gz`. Every fifth one is held out. The network is conv 3x3 (8 channels), ReLU, conv 3x3 (16), ReLU,
max pool 2x2, dense (10); it is trained by Adam (Kingma and Ba, 2015) on the cross-entropy, with shifts by a pixel as augmentation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FOLDER = Path(__file__).parent
EPOCHS, BATCH, RATE, DECAY = 30, 32, 2e-3, 1e-4


def windows(x: np.ndarray) -> np.ndarray:
    """Extract the 3x3 windows of padded images (im2col): (n, c, h, w) to (n, h, w, c * 9)."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    patches = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return patches.transpose(0, 2, 3, 1, 4, 5).reshape(x.shape[0], x.shape[2], x.shape[3], -1)


def conv_gradients(cols: np.ndarray, weight: np.ndarray, up: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute the gradients of a convolution's weight, bias and input from that of its output."""
    count, channels, height, width = up.shape
    flat = up.transpose(0, 2, 3, 1).reshape(-1, channels)
    by_weight = (flat.T @ cols.reshape(flat.shape[0], -1)).reshape(weight.shape)
    spread = (flat @ weight.reshape(channels, -1)).reshape(count, height, width, -1, 3, 3)
    padded = np.zeros((count, spread.shape[3], height + 2, width + 2), np.float32)
    for dy in range(3):
        for dx in range(3):
            padded[:, :, dy : dy + height, dx : dx + width] += spread[..., dy, dx].transpose(0, 3, 1, 2)
    return by_weight, flat.sum(0), padded[:, :, 1:-1, 1:-1]


def conv(cols: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return (cols @ weight.reshape(weight.shape[0], -1).T + bias).transpose(0, 3, 1, 2)


def forward(p: dict[str, np.ndarray], x: np.ndarray) -> dict[str, np.ndarray]:
    """Compute all intermediate values of the network for images (n, 1, 8, 8)."""
    v = {"c1": windows(x)}
    v["a1"] = np.maximum(conv(v["c1"], p["w1"], p["b1"]), 0)
    v["c2"] = windows(v["a1"])
    v["a2"] = np.maximum(conv(v["c2"], p["w2"], p["b2"]), 0)
    blocks = v["a2"].reshape(len(x), 16, 4, 2, 4, 2)
    v["pooled"] = blocks.max(axis=(3, 5))
    v["first"] = (blocks == v["pooled"][:, :, :, None, :, None]).astype(np.float32)
    v["flat"] = v["pooled"].reshape(len(x), -1)
    v["scores"] = v["flat"] @ p["w3"] + p["b3"]
    return v


def gradients(p: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the gradients of the mean cross-entropy."""
    v, g = forward(p, x), {}
    chances = np.exp(v["scores"] - v["scores"].max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    chances[np.arange(len(x)), labels] -= 1
    up = chances / len(x)
    g["w3"], g["b3"] = v["flat"].T @ up, up.sum(0)
    back = (up @ p["w3"].T).reshape(v["pooled"].shape)
    spread = (v["first"] * back[:, :, :, None, :, None]).reshape(v["a2"].shape) * (v["a2"] > 0)
    g["w2"], g["b2"], below = conv_gradients(v["c2"], p["w2"], spread)
    g["w1"], g["b1"], _ = conv_gradients(v["c1"], p["w1"], below * (v["a1"] > 0))
    return g


def shifted(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shift each image by up to one pixel along both axes."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    dy, dx = rng.integers(0, 3, (2, len(x)))
    return np.stack([image[:, a : a + 8, b : b + 8] for image, a, b in zip(padded, dy, dx, strict=True)])


def train(x: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Train for `EPOCHS`. Returns the parameters."""
    shapes = {"w1": (8, 1, 3, 3), "b1": (8,), "w2": (16, 8, 3, 3), "b2": (16,), "w3": (256, 10), "b3": (10,)}
    fan_in = {"w1": 9, "w2": 72, "w3": 256}
    p = {
        name: (rng.standard_normal(shape) * np.sqrt(2 / fan_in[name]) if name in fan_in else np.zeros(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }
    mean, square = ({name: np.zeros_like(value) for name, value in p.items()} for _ in range(2))
    step = 0
    for epoch in range(EPOCHS):
        order = rng.permutation(len(x))
        for start in range(0, len(x), BATCH):
            chosen = order[start : start + BATCH]
            step += 1
            for name, g in gradients(p, shifted(x[chosen], rng), labels[chosen]).items():
                g = g + DECAY * p[name]
                mean[name] = 0.9 * mean[name] + 0.1 * g
                square[name] = 0.999 * square[name] + 0.001 * g * g
                rate = RATE * (1 - epoch / EPOCHS) * np.sqrt(1 - 0.999**step) / (1 - 0.9**step)
                p[name] = (p[name] - rate * mean[name] / (np.sqrt(square[name]) + 1e-8)).astype(np.float32)
    return p


def as_onnx(p: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Export the network as ONNX, for images with values 0 to 16, with probabilities as the output."""
    weights = {"scale": np.float32(1 / 16), **p}
    nodes = [
        helper.make_node("Mul", ["image", "scale"], ["scaled"], name="scale"),
        helper.make_node("Conv", ["scaled", "w1", "b1"], ["c1"], name="conv1", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["a1"], name="relu1"),
        helper.make_node("Conv", ["a1", "w2", "b2"], ["c2"], name="conv2", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c2"], ["a2"], name="relu2"),
        helper.make_node("MaxPool", ["a2"], ["pooled"], name="pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["pooled"], ["flat"], name="flatten"),
        helper.make_node("Gemm", ["flat", "w3", "b3"], ["scores"], name="dense"),
        helper.make_node("Softmax", ["scores"], ["probability"], name="softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probability", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="inlaid example")


def main() -> None:
    """Train, write both files, and print the accuracy on the held-out images."""
    table = np.loadtxt(sys.argv[1], delimiter=",", dtype=np.int64)
    images, labels = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1]
    is_test = np.arange(len(table)) % 5 == 0
    scaled = images.astype(np.float32) / 16
    p = train(scaled[~is_test], labels[~is_test], np.random.default_rng(0))
    right = forward(p, scaled[is_test])["scores"].argmax(1) == labels[is_test]
    model = as_onnx(p)
    onnx.checker.check_model(model)
    onnx.save(model, FOLDER / "digits.onnx")
    np.savez_compressed(FOLDER / "digits.npz", image=images[is_test].astype(np.uint8), label=labels[is_test].astype(np.uint8))
    print(f"{right.sum()} of {right.size} right")


if __name__ == "__main__":
    main()
