"""Sealed bytes: they open to what was sealed, tell nothing by their length, and cannot be taken for
others.
"""

import os
from pathlib import Path

import pytest

from kfm.keys.commitments import Vaults, _rounded
from kfm.model.errors import IntegrityError

CHUNK = 4 << 20
EARLIER = bytes.fromhex(
    "4b464d5345414c311d9bfd2c14a6ace19dde4d24809159c17dec99599dd1792ab833a065881c76bf875566d7a97165"
)  # b"a nest\n", as an earlier kfm sealed it


@pytest.fixture
def vaults(tmp_path: Path) -> Vaults:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "nests").write_text("11" * 32 + "\n")
    return Vaults(tmp_path / "keys")


@pytest.mark.parametrize("size", [0, 1, 4087, 4088, 4089, CHUNK - 9, CHUNK - 8, CHUNK, CHUNK + 1])
def test_what_is_sealed_opens_to_the_same_bytes_in_memory_and_from_files(
    vaults: Vaults, tmp_path: Path, size: int
) -> None:
    raw = os.urandom(size)
    sealed = vaults.sealed("nests", raw)
    assert vaults.unsealed("nests", sealed, "x") == raw
    (tmp_path / "plain").write_bytes(raw)
    vaults.seal("nests", tmp_path / "plain", tmp_path / "x.sealed")
    assert (tmp_path / "x.sealed").read_bytes() == sealed, "equal bytes are sealed to equal bytes"
    vaults.unseal("nests", tmp_path / "x.sealed", tmp_path / "opened")
    assert (tmp_path / "opened").read_bytes() == raw


def test_the_length_of_a_sealed_file_does_not_tell_one_record_more(vaults: Vaults) -> None:
    assert {len(vaults.sealed("nests", b"x" * size)) for size in (0, 40, 508, 552, 4000)} == {
        4096 + 8 + 16 + 16
    }
    assert (
        len({len(vaults.sealed("nests", b"x" * size)) for size in range(100_000, 110_000, 40)}) <= 6
    )
    assert all(
        size <= _rounded(size) <= size * 1.12
        for size in (256, 4096, 4097, 10_001, 1_000_003, 5_000_000_007)
    )


def test_what_an_earlier_kfm_sealed_opens_and_is_sealed_again_to_the_same_bytes(
    vaults: Vaults, tmp_path: Path
) -> None:
    """A run that was killed, or is forced, stores its capture again where it lies."""
    assert vaults.unsealed("nests", EARLIER, "x") == b"a nest\n"
    (tmp_path / "there").write_bytes(EARLIER)
    (tmp_path / "plain").write_bytes(b"a nest\n")
    vaults.seal("nests", tmp_path / "plain", tmp_path / "again", like=tmp_path / "there")
    assert (tmp_path / "again").read_bytes() == EARLIER
    vaults.seal("nests", tmp_path / "plain", tmp_path / "new", like=tmp_path / "nowhere")
    assert (tmp_path / "new").read_bytes() == vaults.sealed("nests", b"a nest\n")


def test_bytes_of_one_form_are_not_taken_for_the_other_nor_cut(vaults: Vaults) -> None:
    sealed = vaults.sealed("nests", b"y" * 9_000_000)
    for wrong in (
        b"KFMSEAL1" + sealed[8:],
        b"KFMSEAL2" + EARLIER[8:],
        b"KFMSEAL3" + sealed[8:],
        sealed[:-1],
        sealed[: 24 + CHUNK + 16],
        b"",
    ):
        with pytest.raises(IntegrityError):
            vaults.unsealed("nests", wrong, "x")
