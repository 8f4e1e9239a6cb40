"""The publisher of dry runs."""

from kfm.publisher.noop import NoopPublisher

__all__ = ["NoopPublisher"]
