"""Random models: modules of every canonical operator, and ONNX models of every operator that the importer converts.

`control` grows control flow, `modules` modules and `onnx_models` ONNX models, each with inputs at several sizes; `check` compiles a
model, runs it at all of them and compares; `shrink` makes a failing model smaller. `benchmarks/random_models.py` is the command.
"""
