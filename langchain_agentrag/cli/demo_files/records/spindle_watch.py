"""Watch the spindle temperature and slow the machine down before it trips."""

from collections.abc import Iterable

BROKEN = -273.0  # what a torn sensor wire reads
WARN_AT = 62.0  # degrees Celsius; the drive itself trips at 75
STEP = 0.85


def throttled_speed(speed: int, temperature: float) -> int:
    """Spindle speed to command next: unchanged while cool, 15 % lower above the warning limit."""
    return speed if temperature < WARN_AT else int(speed * STEP)


def hottest(readings: Iterable[float]) -> float:
    """The highest of the readings, ignoring broken sensors."""
    return max(value for value in readings if value > BROKEN)
