"""TypeScript types of what telemetry tells, from its JSON Schemas: python tools/telemetry_types.py > types/telemetry.ts"""

import json
import sys
from pathlib import Path

SCHEMAS = Path(__file__).parents[1] / "schemas" / "telemetry"
PLAIN = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "null": "null",
}


def told(schema: dict) -> str:
    """The type of a value, as TypeScript says it."""
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[-1]
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(told(each) for each in schema["anyOf"]))
    if schema.get("type") == "array":
        return f"ReadonlyArray<{told(schema.get('items', {}))}>"
    if schema.get("type") == "object" and "properties" not in schema:
        return f"Readonly<Record<string, {told(schema.get('additionalProperties') or {})}>>"
    return PLAIN.get(schema.get("type", ""), "unknown")


def interface(name: str, schema: dict) -> str:
    lines = [f"/** {' '.join(schema['description'].split())} */"] if "description" in schema else []
    lines.append(f"export interface {name} {{")
    needed = schema.get("required", ())
    for key, value in schema.get("properties", {}).items():
        lines.append(f"  readonly {key}{'' if key in needed else '?'}: {told(value)};")
    return "\n".join([*lines, "}"])


def types() -> str:
    found: dict[str, dict] = {}
    for file in sorted(SCHEMAS.rglob("*.json")):
        found |= json.loads(file.read_text()).get("$defs", {})
    head = "// What telemetry tells. Made from schemas/telemetry by `make schemas`: change the records, not this file.\n"
    return "\n".join([head, *(interface(name, found[name]) + "\n" for name in sorted(found))])


if __name__ == "__main__":
    sys.stdout.write(types())
