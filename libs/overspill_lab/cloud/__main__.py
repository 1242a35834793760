"""The cloud as a process: `python -m overspill_lab.cloud --port 0`. Prints one JSON line when it serves."""

import argparse
import asyncio
import secrets
import signal
import sys
import time
from pathlib import Path

import msgspec
from aiohttp import web

from overspill_events.catalog import Offering
from overspill_lab.cloud.ledger import Ledger
from overspill_lab.cloud.life import Timings
from overspill_lab.cloud.server import build_app

DEFAULT_OFFERINGS = tuple(
    Offering(
        id=f"{kind}-{gpus}x-{region}", gpu_type=kind, gpus=gpus, region=region, price_per_hour=price * gpus, stock=stock
    )
    for kind, region, price, stock in (("a100", "north", 1.89, 200), ("h100", "south", 2.99, 100))
    for gpus in (1, 2, 4, 8)
)


class OfferingsError(ValueError):
    """The offerings file cannot be used; the text names the file and the field."""


def read_offerings(path: Path | None) -> tuple[Offering, ...]:
    """Offerings from a JSON list of {id, gpuType, gpus, region, pricePerHour, stock?, spot?}; no file: a small set.

    Raises OfferingsError that names the file and the field.
    """
    if path is None:
        return DEFAULT_OFFERINGS
    try:
        offerings = msgspec.json.decode(path.read_bytes(), type=tuple[Offering, ...])
    except (OSError, msgspec.ValidationError, msgspec.DecodeError) as error:
        raise OfferingsError(f"--offerings {path}: {error}") from error
    if len({offering.id for offering in offerings}) < len(offerings) or not offerings:
        raise OfferingsError(f"--offerings {path}: at least one offering is needed, and each id only once")
    return offerings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="overspill_lab.cloud", description="A small fake GPU cloud.")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--token", help="bearer token of its customers; made up and printed when absent")
    parser.add_argument("--offerings", type=Path, help="JSON file; a small set when absent")
    parser.add_argument("--hours-per-second", type=float, default=1 / 3600, help="billed hours per real second")
    for phase, seconds in msgspec.structs.asdict(Timings()).items():
        parser.add_argument(f"--{phase}-seconds", type=float, default=seconds, help=f"how long {phase} takes")
    return parser.parse_args()


def _steady_clock() -> float:
    """Seconds since the epoch that never go back, whatever is done to the machine's clock."""
    return _EPOCH + time.monotonic()


_EPOCH = time.time() - time.monotonic()


async def _serve(arguments: argparse.Namespace, offerings: tuple[Offering, ...]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    timings = Timings(
        queue=arguments.queue_seconds,
        provision=arguments.provision_seconds,
        start=arguments.start_seconds,
        stop=arguments.stop_seconds,
    )
    ledger = Ledger(
        offerings=offerings, timings=timings, hours_per_second=arguments.hours_per_second, clock=_steady_clock
    )
    token = arguments.token or secrets.token_urlsafe(16)
    runner = web.AppRunner(build_app(ledger, token=token), access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, arguments.host, arguments.port)
        await site.start()
        port = runner.addresses[0][1]
        line = {"url": f"http://{arguments.host}:{port}", "token": token}
        sys.stdout.write(msgspec.json.encode(line).decode() + "\n")
        sys.stdout.flush()
        await stop.wait()
    finally:
        await runner.cleanup()


def main() -> int:
    """Serve until SIGTERM or SIGINT. Exit code 2 for arguments that cannot be used."""
    arguments = _arguments()
    try:
        offerings = read_offerings(arguments.offerings)
    except OfferingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    asyncio.run(_serve(arguments, offerings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
