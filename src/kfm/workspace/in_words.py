"""What is wrong with a file that a person wrote, in words of who wrote it and not of the library that
read it.
"""

import re

import msgspec
import yaml

__all__ = ["in_words", "where_in"]

_TYPES = {  # as YAML has them
    "object": "a mapping",
    "array": "a list",
    "str": "a text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "null": "nothing",
}
_REFUSED = re.compile(
    r"(?:Expected `(?P<wanted>[\w |]+)`, got `(?P<got>\w+)`"
    r"|Object contains unknown field `(?P<unknown>[^`]+)`"
    r"|Object missing required field `(?P<missing>[^`]+)`)(?: - at `\$\.?(?P<at>[^`]*)`)?"
)


def in_words(error: msgspec.ValidationError) -> str:
    """What is wrong with a document, in words of who wrote it."""
    if (found := _REFUSED.fullmatch(str(error))) is None:
        return str(error)
    where = f" in `{found['at']}`" if found["at"] else ""
    if found["unknown"]:
        return f"there is no key `{found['unknown']}`{where}"
    if found["missing"]:
        return f"the key `{found['missing']}` is missing{where}"
    wanted = " or ".join(_TYPES.get(each, each) for each in found["wanted"].split(" | "))
    what = f"`{found['at']}`" if found["at"] else "it"
    return f"{what} is {_TYPES.get(found['got'], found['got'])}, not {wanted}"


def where_in(error: Exception) -> str:
    """What is wrong with a text, with lines and columns counted from 1: where what is not finished
    began, and where that was noticed.
    """
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error).replace("\n", " ")
    parts = ((error.context_mark, error.context), (error.problem_mark, error.problem))
    return "; ".join(f"{_at(mark)}{said}" for mark, said in parts if said)


def _at(mark: yaml.Mark | None) -> str:
    return f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
