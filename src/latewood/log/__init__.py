"""Many segments, one writer, no consumers."""

from latewood.format.identity import Life, LogIdentity, Mark, Owner
from latewood.log.log import Log, Mode
from latewood.log.options import LogOptions
from latewood.log.stats import LogStats
from latewood.log.stream import Stream

__all__ = ["Life", "Log", "LogIdentity", "LogOptions", "LogStats", "Mark", "Mode", "Owner", "Stream"]
