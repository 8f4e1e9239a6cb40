"""What the processes of a test do: make temp folders while others sweep them."""

from pathlib import Path

from kfm.zones.local import LocalZone


def sweep_and_create(root: Path, rounds: int) -> None:
    for number in range(rounds):
        zone = LocalZone(root)
        zone.sweep()
        zone.replace(f"x{number % 3}", b"content")
        zone.close()
