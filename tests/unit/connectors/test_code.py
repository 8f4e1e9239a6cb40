"""Which hooks connector code has is read from its text; a function that may be a misspelt hook is
refused by name.
"""

from types import ModuleType

import pytest

from kfm.connectors.child.code import hooks_of, read_code, run_code
from kfm.model.errors import UsageError

T = "def transform(ctx, rows):\n    yield from rows\n"

FOUND = {
    "a plain function": (T, {"transform"}),
    "every hook": ("".join(f"def {n}(*_): pass\n" for n in ("discover", "change_token", "acquire", "transform", "validate")), 5),
    "a lambda": ("validate = lambda ctx, rows: ()\n", {"validate"}),
    "a partial": ("from functools import partial\ndef _t(n, ctx, rows): return rows\ntransform = partial(_t, 1)\n", {"transform"}),
    "an import": ("from itertools import chain as transform\n", {"transform"}),
    "below a condition": ("try:\n    import numpy\nexcept ImportError:\n    pass\nelse:\n    " + T.replace("\n", "\n    ") + "\n", {"transform"}),
    "decorated": ("import functools\n@functools.cache\ndef discover(ctx): pass\n", {"discover"}),
    "helpers that are called": (T.replace("rows\n", "map(clean, rows)\n") + "def clean(row): return strip(row)\ndef strip(row): return row\n", {"transform"}),
    "a helper that a table names": ("def upper(v): return v\nHOW = {'a': upper}\n" + T, {"transform"}),
    "a private helper": ("def _tranform(row): return row\n" + T, {"transform"}),
    "classes, constants and types": ("from typing import Any\nclass Transforms:\n    def tranform(self): pass\nVALIDATE = 3\nTransform = Any\n" + T, {"transform"}),
    "a variable that is read": ("validated = set()\n" + T.replace("yield", "validated.add(1)\n    yield"), {"transform"}),
    "a decorated helper": ("import atexit\n@atexit.register\ndef goodbye(): pass\n" + T, {"transform"}),
    "what only its own block runs": ("def main(): pass\nif __name__ == '__main__':\n    main()\n" + T, {"transform"}),
    "nothing": ("", set()),
}  # fmt: skip


@pytest.mark.parametrize("case", FOUND)
def test_hooks_are_found_however_they_are_written(case: str) -> None:
    code, wanted = FOUND[case]
    found = hooks_of(code.encode(), "connector.py")
    assert len(found) == wanted if isinstance(wanted, int) else found == wanted


@pytest.mark.parametrize(
    ("name", "meant"),
    [("tranform", "transform"), ("transfrom", "transform"), ("Transform", "transform"), ("transforms", "transform"), ("TRANSFORM", "transform"),
     ("aquire", "acquire"), ("acquires", "acquire"), ("valdate", "validate"), ("discovr", "discover"), ("changetoken", "change_token"),
     ("chnage_token", "change_token"), ("transform_rows", "transform"), ("validation", "validate")],
)  # fmt: skip
@pytest.mark.parametrize(
    "form",
    [
        "def {}(ctx, rows): return rows\n",
        "{} = lambda ctx, rows: rows\n",
        "async def {}(ctx, rows): pass\n",
    ],
)
def test_a_misspelt_hook_is_refused_with_the_one_that_was_meant(
    name: str, meant: str, form: str
) -> None:
    with pytest.raises(UsageError) as refused:
        hooks_of(("x = 1\n" + form.format(name)).encode(), "connector.py")
    assert (
        f"connector.py, line 2: {name}()" in refused.value.happened
        and f"Did you mean `{meant}`?" in refused.value.remedy
    )


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def helper(row): return row\n" + T, "helper() is no hook, and nothing here calls it"),
        ("def again(n): return again(n - 1)\n" + T, "again() is no hook"),
        (
            "def tranform(row): return row\n" + T.replace("rows\n", "map(tranform, rows)\n"),
            "its name is close to one",
        ),
        ("from functools import partial\ntranform = partial(print)\n", "tranform() is no hook"),
        ("if True:\n    def tranform(ctx, rows): return rows\n", "line 2: tranform()"),
        ("async def transform(ctx, rows): pass\n", "transform is asynchronous"),
        ("transform = None\n", "transform is given a value that is no function"),
        ("class acquire: pass\n", "acquire is a class"),
        ("def transform(ctx, rows)\n", "line 1, cannot be read"),
        ("x = '\0'", "cannot be read"),
    ],
)
def test_what_is_no_hook_is_refused_in_words(code: str, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        hooks_of(code.encode(), "connector.py")
    assert said in refused.value.happened and refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [("globals()['transform'] = print\n", "cannot be seen in its text"), ("if not True:\n    def validate(ctx, rows): pass\n", "is not there when it runs"),
     ("from math import pi as validate\n", "no function but float")],
)  # fmt: skip
def test_a_hook_that_comes_or_goes_as_the_code_runs_is_an_error(code: str, said: str) -> None:
    module = ModuleType("m")
    exec(code, module.__dict__)
    with pytest.raises(TypeError, match=said):
        run_code(module, read_code(code.encode(), "connector.py"))
