"""The run key: sha256(source_url | etag | window | pipeline_version)."""

from kfm.model.ids import run_key

__all__ = ["run_key"]
