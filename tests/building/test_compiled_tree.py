"""The hot loops of this tree: compiled if that is asked for, else not."""

import os
from importlib import import_module
from pathlib import Path

import pytest

from building.compiled import MODULES
from protocol.version import COMPILED

IS_COMPILED_RUN = os.environ.get("KGROUP_TEST_COMPILED") == "1"
"""`make test-compiled` sets it: then a module that is not compiled is a failure."""


@pytest.mark.parametrize("module", MODULES)
def test_modules_of_this_tree_are_compiled_if_that_is_asked_for(module: str) -> None:
    file = import_module(module.removesuffix(".py").replace("/", ".")).__file__
    assert file is not None
    assert (Path(file).suffix, COMPILED) == (".so" if IS_COMPILED_RUN else ".py", IS_COMPILED_RUN)
