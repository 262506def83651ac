"""`make demo`: each step goes as it says."""

import asyncio
import sys


async def test_tour_passes_all_steps() -> None:
    """Ten steps, with what the model said and the metrics in between; the exit code says so."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "gateway.testing.tour", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), 60)
    text = out.decode()
    assert (process.returncode, err) == (0, b"")
    assert [line.partition(".")[0] for line in text.splitlines() if line[:1].isdigit()] == [*map(str, range(1, 11))]
    assert "This call waits for your approval." in text and "+09:00" in text  # the MCP server's
    assert "Approve this call?" in text and "\n   -> approve\n" in text  # what an MCP client shows
    assert "# Fruit" in text  # the workflow's
    left_out = text.count("   Left out: ")
    assert "[EMAIL_1]" in text and "X-Context-Cache: miss, then hit" in text  # the guardrails'
    counted = f"{10 - left_out} done, {left_out} left out" if left_out else "10 done"
    assert text.endswith(f"\nOf 10 steps: {counted}.\n")
    assert "Two lanes on one base URL." in text and 'gateway_agent_runs_total{outcome="completed"} ' in text
