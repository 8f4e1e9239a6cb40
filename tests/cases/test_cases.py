"""Inputs that are refused whole, one pair of files each: `<kind>/<name>.yml` says under which code,
`<kind>/<name>.in` is what upstream says.

`datasets.yml` of a folder says how its `good.in` is registered; each case is tried with each. An
input that is too large for a file has `parts` instead: texts, some of them many times, `{n}` their
number. Every case goes through the transform in every run. Through the whole command line, with a
good version official before, go those that say `whole_run: every time`; the drill takes all.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kfm.connectors.base import CaptureRefused, InputFile
from kfm.connectors.child.process import run_transform
from kfm.connectors.operations import Read
from kfm.model.dataset import Column
from tests.given.stand import Stand, answer

HERE = Path(__file__).parent
REFUSED = sorted(p for p in HERE.glob("*/*.yml") if p.name != "datasets.yml")


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    times: int


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What stands in the file of a case."""

    says: str  # what is wrong with it
    code: str | dict[str, str]  # under which it is refused; by dataset where they differ
    whole_run: str = "drill"
    parts: list[str | Part] = []


def case_of(path: Path) -> Case:
    return msgspec.convert(yaml.safe_load(path.read_text()), Case)


def datasets(folder: Path) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((folder / "datasets.yml").read_text())
    return found


def body_of(path: Path) -> bytes:
    parts = case_of(path).parts
    if not parts:
        return path.with_suffix(".in").read_bytes()
    return "".join(
        part
        if isinstance(part, str)
        else "".join(part.text.replace("{n}", str(n)) for n in range(part.times))
        if "{n}" in part.text
        else part.text * part.times
        for part in parts
    ).encode()


def code_of(path: Path, dataset: str) -> str:
    code = case_of(path).code
    return code if isinstance(code, str) else code[dataset]


def every(whole: bool) -> Iterator[Any]:
    for path in REFUSED:
        often = not whole or case_of(path).whole_run == "every time"
        for dataset in datasets(path.parent):
            marks = () if often else pytest.mark.drill
            yield pytest.param(path, dataset, id=f"{dataset}: {path.stem}", marks=marks)


@pytest.mark.parametrize(("path", "dataset"), list(every(whole=False)))
def test_the_transform_refuses_it_under_its_code(path: Path, dataset: str, tmp_path: Path) -> None:
    about = datasets(path.parent)[dataset]
    file, source = tmp_path / "in", about["source"]
    file.write_bytes(body_of(path))
    job = Read(
        dataset_id="d",
        source_kind=source.get("kind", "http_file"),
        format=source.get("format", "csv"),
        inputs=(InputFile(source_id="s", path=str(file), digest="sha256:0"),),
        artifact="d.parquet",
        business_key=tuple(about["business_key"]),
        schema=tuple(msgspec.convert(c, Column) for c in about.get("schema", ())),
        **{k: about[k] for k in ("mapping", "max_quarantined") if k in about},
    )
    with pytest.raises(CaptureRefused) as refused:
        run_transform(job, tmp_path)
    assert refused.value.code == code_of(path, dataset), refused.value


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with Stand(tmp_path_factory.mktemp("cases")) as found:
        yield found


@pytest.mark.parametrize(("path", "dataset"), list(every(whole=True)))
def test_a_run_quarantines_it_whole_and_what_is_official_stays(
    stand: Stand, path: Path, dataset: str
) -> None:
    about, name = datasets(path.parent)[dataset], f"{path.parent.name}_{dataset}"
    if name not in stand.good:
        more = {k: v for k, v in about.items() if k not in ("source", "mapping")}
        if "mapping" in about:
            folder = stand.ws / "scripts" / "connectors" / name
            folder.mkdir(parents=True)
            (folder / "mapping.yml").write_text(json.dumps(about["mapping"]))
        stand.register(name, about["source"], **more)
        stand.publish(name, answer((path.parent / "good.in").read_bytes()))
    body = body_of(path)
    stand.speaker.says[f"/{name}"] = answer(body)
    stand.refuses(name, code_of(path, dataset), kept=[body])


def test_every_input_has_its_case() -> None:
    inputs = {p.with_suffix(".yml") for p in HERE.glob("*/*.in") if p.name != "good.in"}
    assert inputs == {p for p in REFUSED if not case_of(p).parts}
