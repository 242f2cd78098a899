"""Hook implementations of the plugin: a model format. Heavy modules are imported on use."""

from inlaid.plugins import Frontend, hookimpl

PLUGIN_API_VERSION = 3
MARK = b"#!sentences"


def _recognizes(model):
    return isinstance(model, bytes) and model.startswith(MARK)


def _load(source):
    from inlaid_sentences.importer import load

    return load(source)


@hookimpl
def inlaid_frontends():
    return [Frontend("sentences", "Sentences", _load, suffixes=(".sentences",), recognizes=_recognizes)]
