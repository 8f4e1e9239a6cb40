"""isolation: how far the kernel holds a child process."""

from typing import NamedTuple

__all__ = ["Held"]


class Held(NamedTuple):
    """What the kernel does."""

    landlock: int = 0  # its version
    seccomp: bool = False
    why: str = ""  # when it is not all

    @property
    def whole(self) -> bool:
        """Whether nothing can be changed outside, nor read that is not named, nor started, nor
        reached.
        """
        return self.landlock > 0 and self.seccomp
