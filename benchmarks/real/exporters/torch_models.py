"""Writes models by PyTorch's two exporters, TorchScript and Dynamo. Run by `install.py` in an environment with torch.

python torch_models.py FOLDER [MODEL ...]
"""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from common import run
from torch import Tensor, nn


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    """Convolution, batch normalization, ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


@torch.jit.script
def greedy_nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """Indices of the boxes that greedy non-maximum suppression keeps."""
    order = torch.argsort(scores, descending=True)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    alive = torch.ones_like(scores)
    keep_mask = torch.zeros_like(scores)
    for i in range(order.size(0)):
        at = order[i]
        if bool(alive[at] > 0):
            keep_mask[at] = 1.0
            low = torch.max(boxes[:, :2], boxes[at, :2])
            high = torch.min(boxes[:, 2:], boxes[at, 2:])
            extent = (high - low).clamp(min=0.0)
            shared = extent[:, 0] * extent[:, 1]
            alive = torch.where(shared / (areas + areas[at] - shared) > threshold, torch.zeros_like(alive), alive)
    return torch.nonzero(keep_mask).squeeze(1)


class Detector(nn.Module):
    """Boxes on a grid and greedy suppression in a scripted loop."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(block(3, 16, 2), block(16, 32, 2), block(32, 32, 2))
        self.head = nn.Conv2d(32, 5, 1)

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        y = self.head(self.body(image))[0].flatten(1).t()
        center, extent = y[:, :2] * 20 + 16, (y[:, 2:4] * 0.3).exp() * 8
        boxes = torch.cat([center - extent, center + extent], 1)
        indices = greedy_nms(boxes, y[:, 4].sigmoid(), 0.5)
        return boxes[indices], y[:, 4].sigmoid()[indices]


class UNet(nn.Module):
    """Segmentation with skips, resized to the skip's size."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([block(3, 8), block(8, 16), block(16, 24)])
        self.up = nn.ModuleList([block(24 + 16, 16), block(16 + 8, 8)])
        self.head = nn.Conv2d(8, 3, 1)

    def forward(self, image: Tensor) -> Tensor:
        skips, x = [], image
        for level, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if level else x)
            skips.append(x)
        for layer, skip in zip(self.up, (skips[1], skips[0]), strict=True):
            x = layer(torch.cat([F.interpolate(x, skip.shape[2:], mode="bilinear", align_corners=False), skip], 1))
        return self.head(x)


class Crnn(nn.Module):
    """Text recognition: convolutions, a squeezed height, a bidirectional LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(block(1, 16), nn.MaxPool2d(2), block(16, 24), nn.MaxPool2d((2, 1)), nn.Conv2d(24, 24, (8, 2)))
        self.lstm = nn.LSTM(24, 16, num_layers=2, bidirectional=True)
        self.head = nn.Linear(32, 20)

    def forward(self, image: Tensor) -> Tensor:
        x = self.body(image).squeeze(2).permute(2, 0, 1)
        return self.head(self.lstm(x)[0]).log_softmax(2)


class Branch(nn.Module):
    """Voice activity of one sample rate: frames by a convolution, an LSTM cell, a probability."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.frames = nn.Conv1d(1, 34, window, window // 2)
        self.encoder = nn.Conv1d(17, 24, 3, padding=1)
        self.lstm = nn.LSTM(24, 24, 1)
        self.head = nn.Linear(24, 1)

    def forward(self, samples: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.frames(samples.unsqueeze(1))
        x = torch.sqrt(x[:, :17] ** 2 + x[:, 17:] ** 2)
        x = torch.relu(self.encoder(x)).permute(2, 0, 1)
        x, (h, c) = self.lstm(x, (h, c))
        return torch.sigmoid(self.head(x)).mean(0), h, c


class Vad(nn.Module):
    """Two networks and a choice between them by the sample rate: an `If` with an LSTM and its state in each branch."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = Branch(64), Branch(32)

    def forward(self, samples: Tensor, rate: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if bool(rate == 16000):
            return self.wide(samples, h, c)
        if bool(rate == 8000):
            return self.narrow(samples, h, c)
        raise ValueError("sample rates are 8000 and 16000")


class Attention(nn.Module):
    """Attention of heads, written by hand: views, two products, a mask that is filled in."""

    def __init__(self, width: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, hidden: Tensor) -> Tensor:
        q, k, v = (
            layer(y).view(y.size(0), y.size(1), self.heads, -1).transpose(1, 2)
            for layer, y in ((self.query, x), (self.key, memory), (self.value, memory))
        )
        scores = (q @ k.transpose(2, 3) / math.sqrt(q.size(3))).masked_fill(hidden, float("-inf"))
        y = scores.softmax(3) @ v
        return self.output(y.transpose(1, 2).contiguous().view(x.size(0), x.size(1), -1))


class Translator(nn.Module):
    """Encoder and decoder with padding and causal masks."""

    def __init__(self) -> None:
        super().__init__()
        self.source, self.target = nn.Embedding(50, 32), nn.Embedding(50, 32)
        self.attentions = nn.ModuleList([Attention() for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(32) for _ in range(4)])
        self.inner = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 32))
        self.head = nn.Linear(32, 50)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        padded = (source == 0)[:, None, None, :]
        length = target.size(1)
        later = torch.triu(torch.ones(length, length, dtype=torch.bool), diagonal=1)
        first, self_attention, cross = self.attentions
        x = self.source(source)
        memory = self.norms[0](x + first(x, x, padded))
        y = self.target(target)
        y = self.norms[1](y + self_attention(y, y, later))
        y = self.norms[2](y + cross(y, memory, padded))
        return self.head(self.norms[3](y + self.inner(y)))


class Tagger(nn.Module):
    """A tagger of sentences of various lengths: a packed bidirectional GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(60, 24)
        self.gru = nn.GRU(24, 16, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 7)

    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        packed = nn.utils.rnn.pack_padded_sequence(self.words(tokens), lengths, batch_first=True)
        states, last = self.gru(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(states, batch_first=True)
        return self.head(states), last


class Spectrogram(nn.Module):
    """A speech front end: STFT, power, a mel matrix and a logarithm, normalized by the mean of each utterance."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("window", torch.hann_window(128))
        self.register_buffer("mel", torch.rand(65, 20) / 16)

    def forward(self, samples: Tensor) -> Tensor:
        x = torch.stft(samples, 128, 64, window=self.window, center=False, return_complex=False)
        x = x.pow(2).sum(-1).transpose(1, 2) @ self.mel
        x = torch.log(x.clamp(min=1e-5))
        return x - x.mean(1, keepdim=True)


class Step(nn.Module):
    """One step of a decoder with a GRU cell."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 16)
        self.cell = nn.GRUCell(16, 24)
        self.head = nn.Linear(24, 30)

    def forward(self, token: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        state = self.cell(self.words(token), state)
        return self.head(state), state


class Captioner(nn.Module):
    """Greedy decoding in a scripted while loop that ends at a token or a limit."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(12, 24)
        self.words = nn.Embedding(30, 16)
        self.inputs, self.states = nn.Linear(16, 24), nn.Linear(24, 24)
        self.head = nn.Linear(24, 30)

    def forward(self, features: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
        state = torch.tanh(self.encoder(features.mean(1)))
        token = torch.zeros(1, dtype=torch.int64)
        tokens = torch.zeros(1, dtype=torch.int64)
        going = True
        i = 0
        while going and i < int(limit):
            state = torch.tanh(self.inputs(self.words(token)) + self.states(state))
            token = self.head(state).argmax(1)
            tokens = torch.cat([tokens, token])
            going = bool(token[0] != 7)
            i += 1
        return tokens, state


class Sentiment(nn.Module):
    """Bags of words: EmbeddingBag over offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(100, 16, mode="mean")
        self.head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, tokens: Tensor, offsets: Tensor) -> Tensor:
        return self.head(self.bag(tokens, offsets))


class SuperResolution(nn.Module):
    """Upscaling by pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 24, 5, padding=2), nn.PReLU(), nn.Conv2d(24, 16, 3, padding=1), nn.PReLU(16))
        self.head = nn.Sequential(nn.Conv2d(16, 9, 3, padding=1), nn.PixelShuffle(3))

    def forward(self, luma: Tensor) -> Tensor:
        smooth = F.interpolate(luma, scale_factor=3, mode="bicubic", align_corners=False)
        return (self.head(self.body(luma)) + smooth).clamp(0, 1)


class Vit(nn.Module):
    """A vision transformer with scaled dot-product attention."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 8, 8)
        self.token, self.positions = nn.Parameter(torch.randn(1, 1, 32)), nn.Parameter(torch.randn(1, 17, 32) * 0.2)
        layer = nn.TransformerEncoderLayer(32, 4, 64, 0.0, "gelu", batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        return self.head(self.body(x)[:, 0])


class Conformer(nn.Module):
    """A block of a speech encoder: half feed-forward, attention under a length mask, convolution with a gate."""

    def __init__(self) -> None:
        super().__init__()
        self.subsample = nn.Conv1d(20, 32, 3, 2, 1)
        self.norms = nn.ModuleList([nn.LayerNorm(32) for _ in range(4)])
        self.first, self.second = (nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 32)) for _ in range(2))
        self.query, self.output = nn.Linear(32, 96), nn.Linear(32, 32)
        self.gate, self.depth, self.point = nn.Conv1d(32, 64, 1), nn.Conv1d(32, 32, 7, padding=3, groups=32), nn.Conv1d(32, 32, 1)
        self.batch = nn.BatchNorm1d(32)

    def forward(self, features: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = self.subsample(features.transpose(1, 2)).transpose(1, 2)
        lengths = (lengths + 1) // 2
        frame_mask = torch.arange(x.shape[1], device=x.device)[None] < lengths[:, None]
        x = x + 0.5 * self.first(self.norms[0](x))
        q, k, v = self.query(self.norms[1](x)).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4).unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=frame_mask[:, None, None, :])
        x = x + self.output(y.transpose(1, 2).flatten(2))
        y = F.glu(self.gate(self.norms[2](x).transpose(1, 2)), 1).masked_fill(~frame_mask[:, None], 0.0)
        x = x + self.point(F.silu(self.batch(self.depth(y)))).transpose(1, 2)
        return x + 0.5 * self.second(self.norms[3](x)), lengths


class Pose(nn.Module):
    """Heat maps and their decoding by argmax and a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(block(3, 16, 2), block(16, 16), nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.Conv2d(16, 5, 1))

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        heat = self.body(image)
        flat = heat.flatten(2)
        peak_index = flat.argmax(2)
        grid = torch.meshgrid(torch.arange(heat.shape[2]), torch.arange(heat.shape[3]), indexing="ij")
        return torch.stack([axis.flatten()[peak_index] for axis in grid], 2), flat.gather(2, peak_index[:, :, None])


class Denoiser(nn.Module):
    """A step of a diffusion network: time embedding, GroupNorm, self-attention over pixels, nearest upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(32, 32), nn.SiLU(), nn.Linear(32, 32))
        self.input, self.down = nn.Conv2d(4, 16, 3, padding=1), nn.Conv2d(16, 32, 3, 2, 1)
        self.norm, self.mixed = nn.GroupNorm(8, 32), nn.GroupNorm(4, 32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.up, self.output = nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(32, 4, 3, padding=1)

    def forward(self, latent: Tensor, step: Tensor) -> Tensor:
        rates = torch.exp(-math.log(10000) * torch.arange(16) / 16)
        angles = step[:, None].float() * rates
        time = self.time(torch.cat([angles.cos(), angles.sin()], 1))
        first = self.input(latent)
        x = self.down(first) + time[:, :, None, None]
        x = F.silu(self.norm(x))
        tokens = self.mixed(x).flatten(2).transpose(1, 2)
        tokens = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        x = x + tokens.transpose(1, 2).unflatten(2, (x.shape[2], x.shape[3]))
        x = self.up(F.interpolate(x, scale_factor=2.0, mode="nearest"))
        return self.output(torch.cat([x, first], 1))


class Siamese(nn.Module):
    """Tracking: one network for template and search region, and their correlation as a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 2))

    def forward(self, template: Tensor, search: Tensor) -> Tensor:
        return F.conv2d(self.body(search), self.body(template)) * 0.01


class Decoder(nn.Module):
    """A block of a language model with rotary positions and a cache of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 32)
        self.norm, self.query, self.output = nn.RMSNorm(32), nn.Linear(32, 64, bias=False), nn.Linear(32, 32, bias=False)
        self.head = nn.Linear(32, 100, bias=False)

    def forward(self, tokens: Tensor, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = self.words(tokens)
        past, new = keys.shape[2], tokens.shape[1]
        places = torch.arange(past, past + new)
        angles = places[:, None] * (10000.0 ** (-torch.arange(4) / 4))
        cos, sin = (torch.cat([part, part], -1) for part in (angles.cos(), angles.sin()))

        def rotate(y: Tensor) -> Tensor:
            low, high = y.chunk(2, -1)
            return y * cos + torch.cat([-high, low], -1) * sin

        q, k, v = self.query(self.norm(x)).split([32, 16, 16], -1)
        q = rotate(q.unflatten(2, (4, 8)).transpose(1, 2))
        k, v = (y.unflatten(2, (2, 8)).transpose(1, 2) for y in (k, v))
        keys, values = torch.cat([keys, rotate(k)], 2), torch.cat([values, v], 2)
        wide = [y[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2) for y in (keys, values)]
        allowed = torch.arange(past + new)[None] <= places[:, None]
        y = F.scaled_dot_product_attention(q, *wide, attn_mask=allowed)
        return self.head(x + self.output(y.transpose(1, 2).flatten(2))), keys, values


class Recommender(nn.Module):
    """Embeddings of categories, products of all pairs, and a network on top."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList([nn.Embedding(count, 8) for count in (50, 20, 10)])
        self.dense = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 8))
        self.top = nn.Sequential(nn.Linear(8 + 6, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, numbers: Tensor, categories: Tensor) -> Tensor:
        x = self.dense(numbers)
        rows = torch.stack([x, *(table(categories[:, i]) for i, table in enumerate(self.tables))], 1)
        products = rows @ rows.transpose(1, 2)
        above, right = torch.triu_indices(4, 4, 1)
        return self.top(torch.cat([x, products[:, above, right]], 1))


class Forecaster(nn.Module):
    """Two layers of LSTM with state in and out, and a forecast of several quantiles."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 24, 2, batch_first=True)
        self.head = nn.Linear(24, 9)

    def forward(self, series: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, (h, c) = self.lstm(series, (h, c))
        return self.head(x[:, -1]).unflatten(1, (3, 3)).sort(2)[0], h, c


def script(
    model: nn.Module,
    arguments: tuple[Any, ...],
    inputs: tuple[str, ...],
    outputs: tuple[str, ...],
    axes: dict[str, dict[int, str]],
    opset: int = 17,
) -> Any:
    """An export by TorchScript."""

    def write(path: Path) -> None:
        torch.onnx.export(
            model.eval() if isinstance(model, nn.Module) else model,
            arguments,
            str(path),
            dynamo=False,
            opset_version=opset,
            input_names=list(inputs),
            output_names=list(outputs),
            dynamic_axes=axes,
        )

    return write


def dynamo(
    model: nn.Module,
    arguments: tuple[Any, ...],
    inputs: tuple[str, ...],
    shapes: tuple[Any, ...],
    opset: int | None = None,
) -> Any:
    """An export by Dynamo: `shapes` names the dynamic dimensions of each input."""

    def write(path: Path) -> None:
        torch.onnx.export(
            model.eval(),
            arguments,
            str(path),
            dynamo=True,
            external_data=False,
            opset_version=opset,
            input_names=list(inputs),
            dynamic_shapes=shapes,
            verbose=False,
        )

    return write


def tokens(below: int, *shape: int) -> Tensor:
    """Random tokens above 0."""
    return torch.randint(1, below, shape)


def exports() -> dict[str, Any]:
    """What writes each model."""
    size = {0: "batch", 2: "height", 3: "width"}
    image = torch.rand(2, 3, 64, 64)
    auto = torch.export.Dim.AUTO
    free = {0: "batch", 2: auto, 3: auto}
    state = torch.zeros(1, 2, 24)
    return {
        "torch_detector": script(
            Detector(),
            (image[:1],),
            ("image",),
            ("boxes", "scores"),
            {"image": {2: "height", 3: "width"}, "boxes": {0: "kept"}},
            14,
        ),
        "torch_unet": script(UNet(), (image,), ("image",), ("logits",), {"image": size, "logits": size}, 12),
        "torch_crnn": script(
            Crnn(),
            (torch.rand(2, 1, 32, 64),),
            ("image",),
            ("log_probabilities",),
            {"image": {0: "batch", 2: "height", 3: "width"}},
            13,
        ),
        "torch_vad": script(
            torch.jit.script(Vad().eval()),
            (torch.rand(2, 512), torch.tensor(16000), state, state),
            ("samples", "rate", "h", "c"),
            ("probability", "hn", "cn"),
            {"samples": {0: "batch", 1: "samples"}, "h": {1: "batch"}, "c": {1: "batch"}},
            15,
        ),
        "torch_translator": script(
            Translator(),
            (tokens(50, 2, 9), tokens(50, 2, 6)),
            ("source", "target"),
            ("logits",),
            {"source": {0: "batch", 1: "source_length"}, "target": {0: "batch", 1: "target_length"}},
            17,
        ),
        "torch_tagger": script(
            Tagger(),
            (tokens(60, 3, 8), torch.tensor([8, 5, 3])),
            ("tokens", "lengths"),
            ("tags", "last"),
            {"tokens": {0: "batch", 1: "length"}, "lengths": {0: "batch"}},
            14,
        ),
        "torch_spectrogram": script(
            Spectrogram(), (torch.rand(2, 1024),), ("samples",), ("features",), {"samples": {0: "batch", 1: "samples"}}, 17
        ),
        "torch_captioner": script(
            torch.jit.script(Captioner().eval()),
            (torch.rand(1, 5, 12), torch.tensor(6)),
            ("features", "limit"),
            ("tokens", "state"),
            {"features": {1: "regions"}, "tokens": {0: "length"}},
            16,
        ),
        "torch_sentiment": script(
            Sentiment(),
            (tokens(100, 9), torch.tensor([0, 4, 6])),
            ("tokens", "offsets"),
            ("logits",),
            {"tokens": {0: "count"}, "offsets": {0: "batch"}},
            13,
        ),
        "torch_super_resolution": script(
            SuperResolution(), (torch.rand(1, 1, 24, 24),), ("luma",), ("larger",), {"luma": size, "larger": size}, 11
        ),
        "torch_vit": dynamo(Vit(), (torch.rand(2, 3, 32, 32),), ("image",), ({0: "batch"},)),
        "torch_unet_dynamo": dynamo(UNet(), (torch.rand(2, 3, 64, 96),), ("image",), (free,)),
        "torch_conformer": dynamo(
            Conformer(),
            (torch.rand(2, 31, 20), torch.tensor([31, 20])),
            ("features", "lengths"),
            ({0: "batch", 1: "frames"}, {0: "batch"}),
        ),
        "torch_pose": dynamo(Pose(), (torch.rand(2, 3, 64, 48),), ("image",), (free,)),
        "torch_denoiser": dynamo(
            Denoiser(),
            (torch.rand(2, 4, 16, 24), torch.tensor([1, 500])),
            ("latent", "step"),
            ({0: "batch", 2: auto, 3: auto}, {0: "batch"}),
            21,
        ),
        "torch_siamese": dynamo(
            Siamese(), (torch.rand(1, 3, 31, 31), torch.rand(1, 3, 63, 95)), ("template", "search"), ({}, {2: "height", 3: "width"})
        ),
        "torch_decoder": dynamo(
            Decoder(),
            (tokens(100, 2, 3), torch.rand(2, 2, 7, 8), torch.rand(2, 2, 7, 8)),
            ("tokens", "keys", "values"),
            ({0: "batch", 1: "new"}, {0: "batch", 2: "past"}, {0: "batch", 2: "past"}),
        ),
        "torch_recommender": dynamo(
            Recommender(), (torch.rand(4, 5), tokens(10, 4, 3)), ("numbers", "categories"), ({0: "batch"}, {0: "batch"})
        ),
        "torch_forecaster": dynamo(
            Forecaster(),
            (torch.rand(2, 12, 6), torch.zeros(2, 2, 24), torch.zeros(2, 2, 24)),
            ("series", "h", "c"),
            ({0: "batch", 1: "time"}, {1: "batch"}, {1: "batch"}),
        ),
    }


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.manual_seed(0)
    run(exports())
