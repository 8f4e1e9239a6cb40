"""kfm keeps public-interest datasets fresh and can prove every byte it publishes."""

__all__ = ["__version__"]

__version__ = "0.1.0"
