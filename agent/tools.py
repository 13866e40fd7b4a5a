"""Tools that a model may be given, by name: `VOICE_AGENT_TOOLS=agent.tools:current_time`."""

from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from strands import tool


@tool
def current_time(timezone: str = "UTC") -> str:
    """Tell the date and the time of day.

    Args:
        timezone: a name of the IANA database, such as Europe/Berlin.
    """
    try:
        zone = ZoneInfo(timezone)
    except (ZoneInfoNotFoundError, ValueError) as exc:
        raise ValueError(f"{timezone!r} is no time zone of the IANA database") from exc
    return datetime.now(zone).strftime("%A, %B %-d, %Y, %-I:%M %p")
