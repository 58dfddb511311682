"""Edge: the browser that benchmarks and tests of the console drive. Tests: tests/cluster/test_console.py."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Browser


@asynccontextmanager
async def chromium() -> AsyncIterator["Browser"]:
    """Yield a Chromium without a window, which ends with the block.

    Raises:
        FileNotFoundError: it is not installed.
    """
    from playwright.async_api import async_playwright

    path = shutil.which("chromium")
    if path is None:
        raise FileNotFoundError("Chromium is missing (Debian: apt-get install chromium)")
    async with async_playwright() as playwright:
        # Without a sandbox: the benchmark may run as root, and the pages are our own.
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()
