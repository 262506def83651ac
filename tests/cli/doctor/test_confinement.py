"""The confinement of commands as the doctor sees it."""

from gateway.cli.doctor.confinement import examine_confinement


async def test_doctor_reports_whether_commands_are_confined() -> None:
    """It confines a command, or says why each one asks."""
    found = await examine_confinement()
    is_confined = found.level == "ok" and "are confined by" in found.text
    assert is_confined or (found.level == "warn" and "asks: " in found.text and found.advice is not None)
