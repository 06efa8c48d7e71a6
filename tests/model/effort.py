"""How long the machines are run."""

from hypothesis import HealthCheck, settings


def effort(*, campaign: bool, max_examples: int | None = None) -> settings:
    """Settings for a run in the suite, or for one that goes on for an hour or so."""
    return settings(
        max_examples=max_examples or (20_000 if campaign else 60),
        stateful_step_count=60 if campaign else 30,
        suppress_health_check=list(HealthCheck),
    )
