"""Compile a small trained network for this CPU, and classify handwritten digits that it has never seen.

    python examples/classify_digits.py [TARGET]

The network, the 360 images, their source and the training program are in examples/digits/. The network misclassifies a few digits,
and some of these are shown.

Exits with status 1 if fewer images are recognized than after training.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

import numpy as np

import inlaid

FOLDER = Path(__file__).parent / "digits"
EXPECTED = 353
"""Number of images that the trained network recognizes, computed by numpy."""
RUNS = 20
INK = " .:-=+*#%@"


def drawing(image: np.ndarray) -> list[str]:
    """Draw the rows of an image with grey levels 0 to 16 as characters."""
    return [f"{''.join(2 * INK[level * (len(INK) - 1) // 16] for level in row):<18}" for row in image[0]]


def side_by_side(images: np.ndarray, captions: list[str]) -> str:
    """Draw images in a row, each under its caption."""
    columns = [[f"{caption:<18}", *drawing(image)] for image, caption in zip(images, captions, strict=True)]
    return "\n".join("   ".join(parts).rstrip() for parts in zip(*columns, strict=True))


def main() -> int:
    """Classify the images and print the result. Returns the exit status."""
    targets = sys.argv[1:] or None
    start = time.perf_counter()
    executable = inlaid.compile(FOLDER / "digits.onnx", targets)
    on = ", ".join(dict.fromkeys(region.target for region in executable.regions))
    print(f"compiled for {on} in {time.perf_counter() - start:.1f} s: {executable!r}")

    with np.load(FOLDER / "digits.npz") as file:
        images, labels = file["image"], file["label"]
    inputs = {"image": images.astype(np.float32)}
    (chances,) = executable.run(inputs).values()
    predictions = chances.argmax(axis=1)
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        executable.run(inputs)
        times.append(time.perf_counter() - start)

    right = predictions == labels
    captions = [f"is {label}, taken for {guess}" for label, guess in zip(labels, predictions, strict=True)]
    for title, chosen in (("the first four", range(4)), ("mistakes of the network", np.flatnonzero(~right)[:4])):
        print(f"\n{title}:\n{side_by_side(images[chosen], [captions[index] for index in chosen])}")
    print(f"\n{right.sum()} of {right.size} handwritten digits recognized; {EXPECTED} expected")
    print(f"latency: {1e6 * statistics.median(times) / len(images):.1f} µs for an image, in a batch of {len(images)}")
    good = right.sum() >= EXPECTED
    print("the demo works" if good else "THE RESULT IS WRONG: fewer digits are recognized than numpy recognizes")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
