"""Writes models by paddle2onnx. Run by `install.py` in an environment with PaddlePaddle.

python paddle_models.py FOLDER [MODEL ...]
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import paddle
import paddle.nn.functional as F  # noqa: N812
from common import run
from paddle import nn
from paddle.static import InputSpec


def block(inputs: int, outputs: int, stride: Any = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch normalization, hard swish, as the networks of PaddleOCR have them."""
    return nn.Sequential(
        nn.Conv2D(inputs, outputs, 3, stride, 1, groups=groups, bias_attr=False), nn.BatchNorm2D(outputs), nn.Hardswish()
    )


class Recognizer(nn.Layer):
    """Text recognition: convolutions, a pooled height, a bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(block(3, 16, 2), block(16, 16, groups=16), block(16, 32, (2, 1)), nn.MaxPool2D((8, 1), (8, 1)))
        self.lstm = nn.LSTM(32, 16, direction="bidirect")
        self.head = nn.Linear(32, 25)

    def forward(self, image: Any) -> Any:
        x = self.body(image).squeeze(2).transpose([0, 2, 1])
        return F.softmax(self.head(self.lstm(x)[0]), 2)


class Segmenter(nn.Layer):
    """Text detection: a feature pyramid by nearest interpolation, transposed convolutions, a sigmoid."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = block(3, 8, 2), block(8, 16, 2), block(16, 24, 2)
        self.side = nn.LayerList([nn.Conv2D(width, 16, 1) for width in (8, 16, 24)])
        self.head = nn.Sequential(nn.Conv2D(16, 8, 3, padding=1), nn.ReLU(), nn.Conv2DTranspose(8, 1, 2, 2))

    def forward(self, image: Any) -> Any:
        a = self.first(image)
        b = self.second(a)
        c = self.third(b)
        x = self.side[2](c)
        x = self.side[1](b) + F.interpolate(x, b.shape[2:], mode="nearest")
        x = self.side[0](a) + F.interpolate(x, a.shape[2:], mode="nearest")
        return F.sigmoid(self.head(x))


class Encoder(nn.Layer):
    """A text encoder: embeddings, a Transformer layer under a mask, the first token's state."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, 32), nn.Embedding(64, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu")
        self.head = nn.Linear(32, 3)

    def forward(self, tokens: Any) -> Any:
        places = paddle.cumsum(paddle.ones_like(tokens), axis=1) - 1
        mask = (tokens == 0).astype("float32").unsqueeze([1, 2]) * -1e4
        x = self.layer(self.words(tokens) + self.places(places), mask)
        return self.head(F.tanh(x[:, 0]))


class Detector(nn.Layer):
    """A one-stage detector with Paddle's multi-class suppression left out: scores and boxes from two levels."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(block(3, 16, 2), block(16, 16, 2))
        self.deep = block(16, 16, 2)
        self.heads = nn.LayerList([nn.Conv2D(16, 4 + 3, 1) for _ in range(2)])

    def forward(self, image: Any) -> Any:
        a = self.body(image)
        levels = []
        for head, x, stride in zip(self.heads, (a, self.deep(a)), (4.0, 8.0)):  # noqa: B905, Paddle rewrites this call and knows no `strict`
            y = head(x)
            y = paddle.transpose(paddle.flatten(y, 2), [0, 2, 1])
            boxes, scores = paddle.split(y, [4, 3], 2)
            levels.append(paddle.concat([F.relu(boxes) * stride, F.sigmoid(scores)], 2))
        return paddle.concat(levels, 1)


def exported(layer: type[nn.Layer], inputs: list[InputSpec], opset: int) -> Callable[[Path], None]:
    """An export of a layer."""

    def write(path: Path) -> None:
        paddle.seed(0)
        model = layer()
        model.eval()
        paddle.onnx.export(model, str(path.with_suffix("")), inputs, opset_version=opset, optimize_tool="None")

    return write


EXPORTS = {
    "paddle_recognizer": exported(Recognizer, [InputSpec([None, 3, 32, None], "float32", "image")], 11),
    "paddle_segmenter": exported(Segmenter, [InputSpec([None, 3, None, None], "float32", "image")], 12),
    "paddle_encoder": exported(Encoder, [InputSpec([None, None], "int64", "tokens")], 14),
    "paddle_detector": exported(Detector, [InputSpec([None, 3, None, None], "float32", "image")], 16),
}


if __name__ == "__main__":
    run(EXPORTS)
