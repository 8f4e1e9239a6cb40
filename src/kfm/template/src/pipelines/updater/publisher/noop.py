"""The publisher of dry runs."""

from kfm.world.publisher.noop import NoopPublisher

__all__ = ["NoopPublisher"]
