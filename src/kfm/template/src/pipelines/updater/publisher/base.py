"""What every publisher promises."""

from kfm.publisher.base import Publisher

__all__ = ["Publisher"]
