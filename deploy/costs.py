"""What instances cost. AWS tells no price through the APIs used here, so these are written down, with their date."""

# On demand, real-time inference, us-east-1, USD an hour. Other regions cost up to about half as much again.
PRICES_AS_OF = "2025-11"
_PRICES_USD = {
    "ml.g4dn.xlarge": 0.736,
    "ml.g4dn.2xlarge": 0.94,
    "ml.g5.xlarge": 1.408,
    "ml.g5.2xlarge": 1.515,
    "ml.g6.xlarge": 1.1267,
    "ml.g6.2xlarge": 1.222,
    "ml.g6e.xlarge": 2.6054,
    "ml.g6e.2xlarge": 2.8026,
    "ml.c5.xlarge": 0.204,
    "ml.c5.2xlarge": 0.408,
    "ml.m5.xlarge": 0.23,
}


def price_usd_per_hour(instance_type: str) -> float | None:
    """List price of one instance; None: not in the table."""
    return _PRICES_USD.get(instance_type)


def cost_sentence(instance_type: str, least: int, most: int) -> str:
    """What it costs while it runs, for a person who is about to start it."""
    price = price_usd_per_hour(instance_type)
    if price is None:
        return f"the price of {instance_type} is not in the table: look it up at https://aws.amazon.com/sagemaker/ai/pricing"
    hourly = f"{least * price:.2f}" + (f" to {most * price:.2f}" if most > least else "")
    fleet = f"{least}" + (f" to {most}" if most > least else "")
    return (
        f"{hourly} USD an hour, at least {least * price * 730:,.0f} USD a month, for {fleet} x {instance_type} "
        f"(list price in us-east-1, {PRICES_AS_OF}; other regions differ), until `destroy`"
    )
