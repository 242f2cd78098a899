"""Writes models by skl2onnx and onnxmltools. Run by `install.py` in an environment with scikit-learn.

python sklearn_models.py FOLDER [MODEL ...]
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import pandas
import xgboost
from common import run
from onnxmltools import convert_lightgbm, convert_xgboost
from onnxmltools.convert.common.data_types import FloatTensorType as ToolsFloat
from skl2onnx import convert_sklearn
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingRegressor, IsolationForest, RandomForestClassifier
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.neighbors import KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import SVR

ROWS, COLUMNS = 300, 6
PLAIN = {"zipmap": False}


def data() -> tuple[Any, Any, Any]:
    """Features, classes 0 to 2, and a target to regress."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (ROWS, COLUMNS)).astype(np.float32)
    target = x[:, 0] * x[:, 1] + np.sin(3 * x[:, 2]) + 0.3 * x[:, 3]
    return x, np.digitize(target, [-0.4, 0.4]), target.astype(np.float32)


def table() -> tuple[pandas.DataFrame, Any]:
    """Two numbers and a word in each row, and two classes."""
    random = np.random.default_rng(2)
    frame = pandas.DataFrame(
        {
            "age": random.uniform(18, 90, ROWS).astype(np.float32),
            "income": random.uniform(0, 9, ROWS).astype(np.float32),
            "city": random.choice(["Rome", "Oslo", "Lima"], ROWS),
        }
    )
    return frame, ((frame["age"] > 50) ^ (frame["city"] == "Rome")).to_numpy().astype(np.int64)


def exports() -> dict[str, Any]:
    """The converted models."""
    x, classes, target = data()
    matrix = [("x", FloatTensorType([None, COLUMNS]))]
    frame, bought = table()
    columns = [("age", FloatTensorType([None, 1])), ("income", FloatTensorType([None, 1])), ("city", StringTensorType([None, 1]))]
    prepared = ColumnTransformer([("numbers", StandardScaler(), ["age", "income"]), ("words", OneHotEncoder(), ["city"])])
    holes = np.where(np.random.default_rng(3).uniform(size=x.shape) < 0.1, np.nan, x)
    return {
        "sklearn_forest": lambda: convert_sklearn(
            RandomForestClassifier(20, max_depth=6, random_state=0).fit(x, classes), "m", matrix, options={"zipmap": False}
        ),
        "sklearn_boosting": lambda: convert_sklearn(
            make_pipeline(SimpleImputer(), StandardScaler(), GradientBoostingRegressor(n_estimators=30, random_state=0)).fit(
                holes, target
            ),
            "m",
            matrix,
        ),
        "sklearn_columns": lambda: convert_sklearn(
            make_pipeline(prepared, MLPClassifier((16,), max_iter=60, random_state=0)).fit(frame, bought),
            "m",
            columns,
            options=PLAIN,
        ),
        "sklearn_svm": lambda: convert_sklearn(make_pipeline(StandardScaler(), SVR()).fit(x, target), "m", matrix),
        "sklearn_neighbors": lambda: convert_sklearn(KNeighborsRegressor(3).fit(x[:80], target[:80]), "m", matrix),
        "sklearn_clusters": lambda: convert_sklearn(
            make_pipeline(PolynomialFeatures(2), PCA(5, random_state=0), KMeans(4, n_init=2, random_state=0)).fit(x), "m", matrix
        ),
        "sklearn_outliers": lambda: convert_sklearn(
            IsolationForest(n_estimators=10, max_samples=32, random_state=0).fit(x),
            "m",
            matrix,
            target_opset={"": 17, "ai.onnx.ml": 3},
        ),
        "sklearn_process": lambda: convert_sklearn(GaussianProcessRegressor().fit(x[:50], target[:50]), "m", matrix),
        "lightgbm_ranker": lambda: convert_lightgbm(
            lightgbm.LGBMRegressor(n_estimators=25, num_leaves=15, random_state=0, verbose=-1).fit(x, target),
            initial_types=[("x", ToolsFloat([None, COLUMNS]))],
        ),
        "xgboost_classifier": lambda: convert_xgboost(
            xgboost.XGBClassifier(n_estimators=15, max_depth=4, random_state=0).fit(x, classes),
            initial_types=[("x", ToolsFloat([None, COLUMNS]))],
        ),
    }


def write(convert: Callable[[], Any], path: Path) -> None:
    """Convert a model and write the file."""
    path.write_bytes(convert().SerializeToString())


if __name__ == "__main__":
    run({name: partial(write, convert) for name, convert in exports().items()})
