"""`vramledger devices`."""

from __future__ import annotations

from vramledger.cli.options import GroupedCommand, json_option


def run_devices(*, as_json: bool) -> int:
    """Print the catalogue."""
    from vramledger.cli.output import page_width, write_document, write_page
    from vramledger.hardware.catalogue import devices

    if as_json:
        from vramledger.report.devices_document import devices_document

        write_document(devices_document(devices()))
    else:
        from vramledger.report.devices_text import devices_lines

        write_page(devices_lines(devices(), width=page_width()))
    return 0


command = GroupedCommand(
    "devices",
    callback=run_devices,
    help="Devices of the catalogue: memory as torch reports it, and how that is known.",
    params=[json_option()],
)
