"""What every publisher promises."""

from kfm.world.publisher.base import Publisher

__all__ = ["Publisher"]
