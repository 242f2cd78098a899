"""Writes models by tf2onnx. Run by `install.py` in an environment with TensorFlow.

python keras_models.py FOLDER [MODEL ...]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf
import tf2onnx
from common import run

layers = tf.keras.layers


def classifier() -> tf.keras.Model:
    """MobileNet of keras.applications, a quarter as wide, over images of any size."""
    image = tf.keras.Input((None, None, 3), name="image")
    body = tf.keras.applications.MobileNet(input_tensor=image, alpha=0.25, weights=None, include_top=False, pooling="avg")
    return tf.keras.Model(image, layers.Dense(10, activation="softmax")(body.output))


def separable() -> tf.keras.Model:
    """Segmentation with separable convolutions, a transposed one and bilinear upsampling, channels last."""
    image = tf.keras.Input((48, 64, 3), name="image")
    first = layers.Conv2D(8, 3, 2, "same", activation="relu")(image)
    x = layers.SeparableConv2D(16, 3, 2, "same")(first)
    x = layers.LeakyReLU()(layers.BatchNormalization()(x))
    x = layers.Conv2DTranspose(8, 3, 2, "same", activation="relu")(x)
    x = layers.Concatenate()([x, first])
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    return tf.keras.Model(image, layers.Softmax()(layers.Conv2D(4, 1)(x)))


def reviews() -> tf.keras.Model:
    """Text classification: a masked embedding, a bidirectional LSTM, and an average."""
    tokens = tf.keras.Input((None,), dtype="int32", name="tokens")
    x = layers.Embedding(100, 16)(tokens)
    x = layers.Bidirectional(layers.LSTM(12, return_sequences=True))(x)
    x = layers.GlobalAveragePooling1D()(x)
    return tf.keras.Model(tokens, layers.Dense(1, activation="sigmoid")(x))


def keywords() -> tf.keras.Model:
    """Keyword spotting: a GRU over features, attention by one query."""
    features = tf.keras.Input((None, 10), name="features")
    x = layers.Conv1D(16, 5, padding="causal", activation="relu")(features)
    x = layers.GRU(16, return_sequences=True)(x)
    query = layers.Dense(16)(x[:, -1])
    x = layers.Attention()([query[:, None], x])[:, 0]
    return tf.keras.Model(features, layers.Dense(6, activation="softmax")(x))


def transformer() -> tf.keras.Model:
    """A block of a transformer over embeddings, with MultiHeadAttention and LayerNormalization."""
    x = tokens = tf.keras.Input((None, 24), name="tokens")
    y = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.MultiHeadAttention(4, 6)(y, y)])
    y = layers.Dense(48, activation=partial(tf.keras.activations.gelu, approximate=True))(layers.LayerNormalization()(x))
    x = layers.Add()([x, layers.Dense(24)(y)])
    return tf.keras.Model(tokens, layers.GlobalMaxPooling1D()(x))


class Detector(tf.Module):
    """Boxes, and TensorFlow's own non-maximum suppression."""

    def __init__(self) -> None:
        super().__init__()
        self.body = tf.keras.Sequential(
            [
                layers.Conv2D(16, 3, 4, "same", activation="relu"),
                layers.Conv2D(16, 3, 2, "same", activation="relu"),
                layers.Conv2D(5, 1),
            ]
        )
        self.body.build((None, None, None, 3))

    @tf.function(input_signature=[tf.TensorSpec((1, None, None, 3), name="image")])
    def __call__(self, image: Any) -> tuple[Any, Any]:
        y = tf.reshape(self.body(image), (-1, 5))
        center, half = tf.sigmoid(y[:, :2]) * 40, tf.exp(y[:, 2:4]) * 8
        boxes, scores = tf.concat([center - half, center + half], 1), tf.sigmoid(y[:, 4])
        indices = tf.image.non_max_suppression(boxes, scores, 10, 0.4, 0.3)
        return tf.gather(boxes, indices), tf.gather(scores, indices)


class Spectrum(tf.Module):
    """A speech front end of tf.signal: frames, a real Fourier transform, a mel matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.mel = tf.signal.linear_to_mel_weight_matrix(16, 65, 8000, 60.0, 3800.0).numpy()

    @tf.function(input_signature=[tf.TensorSpec((1, 640), name="samples")])
    def __call__(self, samples: Any) -> Any:
        spectrum = tf.abs(tf.signal.stft(samples, 128, 64, 128))
        return tf.math.log(tf.matmul(spectrum, self.mel) + 1e-5)


def keras(build: Callable[[], tf.keras.Model], opset: int) -> Any:
    """An export of a Keras model."""

    def write(path: Path) -> None:
        tf.keras.utils.set_random_seed(0)
        model = build()
        signature = [tf.TensorSpec(item.shape, item.dtype, name=item.name) for item in model.inputs]
        function = tf.function(lambda *values: model(*values), input_signature=signature)
        tf2onnx.convert.from_function(function, input_signature=signature, opset=opset, output_path=str(path))

    return write


def function(module: Callable[[], Any], opset: int) -> Any:
    """An export of a function."""

    def write(path: Path) -> None:
        tf.keras.utils.set_random_seed(0)
        owner = module()  # a bound function holds its module weakly
        traced = owner.__call__
        tf2onnx.convert.from_function(traced, input_signature=traced.input_signature, opset=opset, output_path=str(path))

    return write


EXPORTS = {
    "keras_classifier": keras(classifier, 13),
    "keras_segmentation": keras(separable, 15),
    "keras_reviews": keras(reviews, 14),
    "keras_keywords": keras(keywords, 15),
    "keras_transformer": keras(transformer, 18),
    "tf_detector": function(Detector, 12),
    "tf_spectrum": function(Spectrum, 17),
}


if __name__ == "__main__":
    run(EXPORTS)
