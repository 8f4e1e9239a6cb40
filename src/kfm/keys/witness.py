"""Countersignatures of witnesses: what somebody else saw of a channel."""

from collections.abc import Callable, Mapping

from kfm.keys.trust import Trust, UnknownSigner, broken, statement
from kfm.model import Json, KfmError

__all__ = ["check_witnesses", "witness_statement"]

WITNESS = "kfm://predicate/witness/v1"


def witness_statement(dataset_id: str, generation: int, digest: str, fingerprint: str) -> Json:
    """What a witness signs: this generation of this channel, under this root, was these bytes."""
    seen = {
        "dataset_id": dataset_id,
        "generation": generation,
        "digest": digest,
        "root": fingerprint,
    }
    return statement(
        "witness", f"kfm://dataset/{dataset_id}@{generation}", digest.removeprefix("sha256:"), seen
    )


def check_witnesses(
    files: Mapping[str, bytes],
    trust: Trust,
    digest_of: Callable[[str, int], str | None],
    wrong: Callable[[str, str, int], None],
) -> int:
    """How many of `files` (`<dataset>/<generation:08>.json`) say what the channel says now; the
    others go to `wrong`(where, what, exit code).
    """
    agreed = 0
    for name, raw in sorted(files.items()):
        try:
            document, _ = trust.verified_by(raw, "witness")
            seen = document["predicate"]
            dataset_id, generation = str(seen["dataset_id"]), int(seen["generation"])
            if (
                document.get("predicateType") != WITNESS
                or name != f"{dataset_id}/{generation:08}.json"
            ):
                raise broken("it is no countersignature of the generation it is named after")
        except UnknownSigner:
            wrong(
                name,
                "its signer is not a witness this root knows; enrol it with `kfm keys enrol`",
                3,
            )
        except KfmError as error:
            wrong(name, error.happened, error.exit_code)
        except (KeyError, TypeError, ValueError):
            wrong(name, "it is no countersignature", 6)
        else:
            now = digest_of(dataset_id, generation)
            if seen.get("root") != trust.fingerprint:
                wrong(name, "it was given under another root", 6)
            elif now != seen.get("digest"):
                what = "is gone" if now is None else "has other bytes"
                wrong(
                    name,
                    f"history was rewritten: generation {generation} of {dataset_id} {what} since"
                    " the witness saw it",
                    6,
                )
            else:
                agreed += 1
    return agreed
