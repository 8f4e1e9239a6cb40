"""The publisher for GitHub Actions."""

from kfm.world.publisher.github_actions import GithubActionsPublisher

__all__ = ["GithubActionsPublisher"]
