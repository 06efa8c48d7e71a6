"""Which versions are installed."""

from importlib.metadata import PackageNotFoundError, version


def package_version(package: str = "latewood") -> str | None:
    """Return the version of an installed package; None if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
