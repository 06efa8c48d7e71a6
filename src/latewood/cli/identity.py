"""Which log it is, as commands show it."""

from latewood.log import LogIdentity


def identity_fields(identity: LogIdentity | None) -> dict[str, str | None]:
    """Return identity, life and owner as text; all None if an older program made the log."""
    if identity is None:
        return {"identity": None, "life": None, "owner": None}
    return {
        "identity": identity.identity.hex(),
        "life": f"{identity.life:016x}",
        "owner": identity.owner.name.lower(),
    }
