"""The one exception that never leaves this package: an attempt failed and another may help."""

__all__ = ["Transient"]


class Transient(Exception):
    """An attempt failed in a way that may pass; `reason` is fit for logs."""

    def __init__(self, reason: str, *, retry_after: float | None = None, pause: bool = True) -> None:
        super().__init__(reason)
        self.reason, self.retry_after, self.pause = reason, retry_after, pause
