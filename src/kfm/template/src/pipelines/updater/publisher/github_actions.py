"""The publisher for GitHub Actions."""

from kfm.publisher.github_actions import GithubActionsPublisher

__all__ = ["GithubActionsPublisher"]
