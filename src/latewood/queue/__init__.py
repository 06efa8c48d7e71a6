"""A log plus cursors and retention."""

from latewood.queue.queue import Queue, ReaderInfo, open_queue
from latewood.queue.reader import Reader, Start
from latewood.queue.retention import RetentionPolicy

__all__ = ["Queue", "Reader", "ReaderInfo", "RetentionPolicy", "Start", "open_queue"]
