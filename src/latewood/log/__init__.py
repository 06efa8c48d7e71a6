"""Many segments, one writer, no consumers."""

from latewood.log.log import Log, Mode
from latewood.log.options import LogOptions
from latewood.log.stats import LogStats
from latewood.log.stream import Stream

__all__ = ["Log", "LogOptions", "LogStats", "Mode", "Stream"]
