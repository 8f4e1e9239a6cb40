"""What each gate says of a commit, as a check of GitHub; as a status where the token is a person's."""

import msgspec

from kfm.extras.github.client import Hub, once
from kfm.model import Denied, Json

__all__ = ["Check", "keep_checks"]

_STATES = {"success": "success", "neutral": "success", "failure": "failure"}
_MOST = 65_000


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One line below a pull request. `about`: what it was judged on, by digest."""

    name: str
    conclusion: str  # success, neutral, action_required, failure
    title: str
    about: str
    text: str = ""

    @property
    def told(self) -> Json:
        """Its members as GitHub takes them."""
        output = {"title": self.title[:250], "summary": (self.text or self.title)[:_MOST]}
        return {
            "name": self.name,
            "external_id": self.about,
            "status": "completed",
            "conclusion": self.conclusion,
            "output": output,
        }


def keep_checks(hub: Hub, sha: str, checks: list[Check]) -> None:
    """Let each check of the commit say what it should; what it says already is not said again."""
    try:
        _runs(hub, sha, checks)
    except Denied as error:
        # Checks are for Apps, which Actions is one of; a person's token may set statuses alone.
        try:
            _statuses(hub, sha, checks)
        except Denied:
            raise error from None


def _runs(hub: Hub, sha: str, checks: list[Check]) -> None:
    path = f"/commits/{sha}/check-runs"

    def made() -> dict[str, Json]:
        """The newest check of each name, as pages of pull requests show it."""
        listed = sorted(hub.pages(path, "check_runs", filter="all"), key=lambda c: int(c["id"]))
        return {str(c["name"]): c for c in listed}

    before = made()
    for check in checks:
        found = before.get(check.name) or once(
            hub,
            lambda name=check.name: made().get(name),  # type: ignore[misc]
            lambda told=check.told: hub.post("/check-runs", {**told, "head_sha": sha}).json,  # type: ignore[misc]
            looked=True,
        )
        if not _says(found, check):
            hub.patch(f"/check-runs/{found['id']}", check.told)


def _says(found: Json, check: Check) -> bool:
    return (found.get("external_id"), found.get("conclusion"), found["output"]["title"]) == (
        check.about,
        check.conclusion,
        check.told["output"]["title"],
    )


def _statuses(hub: Hub, sha: str, checks: list[Check]) -> None:
    """A status is added and never changed: one that says the same last is left as it is."""
    path = f"/commits/{sha}/statuses"
    for check in checks:
        told: Json = {
            "context": check.name,
            "state": _STATES.get(check.conclusion, "pending"),
            "description": check.title[:140],
        }

        def look() -> Json | None:
            last = next((s for s in hub.pages(path) if s["context"] == told["context"]), {})
            return last if all(last.get(k) == v for k, v in told.items()) else None

        once(hub, look, lambda: hub.post(f"/statuses/{sha}", told).json)
