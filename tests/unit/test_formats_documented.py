"""What docs/connectors.md says of formats can be registered."""

import re
from pathlib import Path

import msgspec

from kfm.workspace.config import new_entry

PAGE = (Path(__file__).parents[2] / "docs" / "connectors.md").read_text()
FORMATS = PAGE.partition("\n## Formats\n")[2].partition("\n## ")[0]


def test_every_example_of_a_format_can_be_registered() -> None:
    examples = re.findall(r"`(\{(?:kind|format): .*?\})`(?: \||;)", FORMATS)
    assert len(examples) >= 6
    for example in examples:
        source = msgspec.yaml.decode(example, type=dict)
        entry = new_entry(
            {
                "dataset_id": "d",
                "title": "D",
                "source": {"url": "https://data.example/file", **source},
            }
        )
        assert entry.source.format, example
