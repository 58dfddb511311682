"""Edge: certificates live in time: one that is not valid now is not taken, and its end is announced."""

import asyncio
import logging
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from metadata_log.errors import InvalidSettings
from metadata_log.node.identity.certificate_dates import Dated, date_text, dated, has_ended
from metadata_log.node.identity.certificate_metrics import certificate_ends
from metadata_log.node.identity.credentials import TlsFiles, dates_of, tls_reason, trusting, why_it_failed
from metadata_log.node.identity.tls import Tls, recent_and_ending
from metadata_log.node.recent_warnings import RecentWarnings
from metadata_log.replay.controller_client import Shown
from ops.certificates import Authority
from tests.support.certificates import DAY_S, certified, date_authority
from tests.unit.metadata_log.node.identity.test_tls import authority, copied, serving, told

NOW_S = int(time.time())


@pytest.mark.parametrize(
    "ends_s", [NOW_S + DAY_S, 2**31 + DAY_S, 2_600_000_000], ids=["soon", "2038", "2052"]
)
def test_dates_are_read_from_files(tmp_path: Path, ends_s: int) -> None:
    """The last is beyond 2049: such a date is written in another form."""
    ours = authority(tmp_path)
    files = certified(ours, "controller", "1", begins_s=NOW_S - 5, ends_s=ends_s)
    of_node, of_authority = dates_of(files.certificate, files.ca)
    assert of_node == Dated("CERTIFICATE", str(files.certificate), NOW_S - 5, ends_s)
    assert of_authority.kind == "AUTHORITY" and of_authority.ends_s > NOW_S + 1_000 * DAY_S


def test_a_chain_ends_with_its_first_certificate_and_the_authority_is_the_one_that_issued_it(
    tmp_path: Path,
) -> None:
    ours, another = authority(tmp_path / "ours"), Authority(tmp_path / "x", cluster_id="x" * 22)
    files = certified(ours, "controller", "1", begins_s=NOW_S - 50, ends_s=NOW_S + 9 * DAY_S)
    date_authority(ours, begins_s=NOW_S - 40, ends_s=NOW_S + 5 * DAY_S)
    both = another.ca.read_bytes() + ours.ca.read_bytes()
    chain = files.certificate.read_bytes() + ours.ca.read_bytes()
    of_node, of_authority = dated(certificate=("n", chain), authority=("a", both))
    assert (of_node.begins_s, of_node.ends_s) == (NOW_S - 40, NOW_S + 5 * DAY_S)
    assert of_authority.ends_s == NOW_S + 5 * DAY_S
    # Whose node is not known, any authority of the file will do.
    assert dated(authority=("a", both))[0].ends_s > NOW_S + 1_000 * DAY_S


@pytest.mark.parametrize(
    "content", [b"", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----", b"x" * 99]
)
def test_what_holds_no_certificate_has_no_dates(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"no certificate|dates"):
        dated(authority=("a", content))


def test_damaged_certificates_have_no_dates_and_end_no_process(tmp_path: Path) -> None:
    """Method: a certificate cut after each of its bytes up to its dates."""
    content = ssl.PEM_cert_to_DER_cert(authority(tmp_path).ca.read_text())
    for at in range(1, 200):
        with pytest.raises(ValueError, match=r"no certificate|dates"):
            dated(authority=("a", ssl.DER_cert_to_PEM_cert(content[:at]).encode()))


@pytest.mark.parametrize(
    ("left_s", "code", "urgent"),
    [
        (31 * DAY_S, None, False),
        (29 * DAY_S, "CERTIFICATE_ENDS_SOON", False),
        (DAY_S, "CERTIFICATE_ENDS_SOON", True),
        (-1, "CERTIFICATE_EXPIRED", True),
    ],
)
def test_the_end_is_announced_by_how_near_it_is(left_s: int, code: str | None, *, urgent: bool) -> None:
    file = Dated("CERTIFICATE", "/tls/node.crt", NOW_S - DAY_S, NOW_S + left_s)
    condition = file.condition(NOW_S)
    assert (None if condition is None else condition[0]) == code
    if condition is not None:
        assert "/tls/node.crt" in condition[1] and date_text(NOW_S + left_s) in condition[1]
        assert file.is_urgent(NOW_S) is urgent
    early = file.condition(NOW_S - 2 * DAY_S)
    assert early is not None and early[0] == "CERTIFICATE_NOT_YET_VALID" and "correct the clock" in early[1]


@pytest.mark.parametrize("broken", ["node expired", "node early", "authority expired"])
def test_a_start_with_files_that_are_not_valid_now_names_file_and_date(tmp_path: Path, broken: str) -> None:
    ours = authority(tmp_path)
    files = ours.certify("controller", "1")
    begins_s, ends_s = (NOW_S + DAY_S, NOW_S + 2 * DAY_S) if "early" in broken else (NOW_S - 99, NOW_S - 9)
    if broken.startswith("node"):
        certified(ours, "controller", "1", begins_s=begins_s, ends_s=ends_s)
    else:
        date_authority(ours, begins_s=begins_s, ends_s=ends_s)
    named = files.certificate if broken.startswith("node") else files.ca
    date = date_text(begins_s if "early" in broken else ends_s)
    begins: list[Callable[[], object]] = [
        lambda: Tls(files, cluster_id="c"),
        files.client,
        Shown(ca=files.ca, cert=files.certificate, key=files.key).context,
    ]
    if broken.startswith("authority"):
        begins.append(lambda: trusting(files.ca))
    for begin in begins:
        with pytest.raises(InvalidSettings) as refused:
            begin()
        assert str(named) in refused.value.message and date in refused.value.message
    # At a time at which they are valid, they are taken: the clock is an argument.
    assert Tls(files, cluster_id="c", now_ms=lambda: 1000 * (begins_s + 1)).dates


@pytest.mark.parametrize("broken", ["expired", "early", "authority"])
def test_files_that_are_not_valid_now_never_replace_those_that_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: str
) -> None:
    """Goal: case 03 a. Method: a sound pair serves; one that fits and is not valid is put in its place, then a sound one."""
    ours = authority(tmp_path / "ours")
    files = copied(ours.certify("controller", "1"), tmp_path)
    tls = Tls(files, cluster_id="c")
    sound = tls.dates
    if broken == "authority":
        date_authority(ours, begins_s=NOW_S - 99, ends_s=NOW_S - 9)
    begins_s, ends_s = (NOW_S + DAY_S, NOW_S + 2 * DAY_S) if broken == "early" else (NOW_S - 99, NOW_S - 9)
    if broken != "authority":
        certified(ours, "controller", "1", begins_s=begins_s, ends_s=ends_s)

    async def story() -> None:
        async with serving(tls) as address:
            client = trusting(Path(files.ca))
            served = (await told(address, client))[1]
            copied(ours.certify("controller", "1"), tmp_path)
            for _ in range(3):
                tls.look_again()
            assert (await told(address, client))[1] == served, "what was read before counts"

    caplog.set_level(logging.INFO)
    asyncio.run(story())
    refused = [r for r in caplog.records if r.getMessage() == "certificates_not_reloaded"]
    assert len(refused) == 1, "logged once, not every five seconds"
    assert date_text(begins_s if broken == "early" else ends_s) in str(vars(refused[0])["reason"])
    assert tls.dates == sound
    assert [code for code, _ in tls.reasons()] == ["CERTIFICATES_NOT_RELOADED"]
    date_authority(ours, begins_s=NOW_S - 99, ends_s=NOW_S + 4_000 * DAY_S)
    certified(ours, "controller", "1", begins_s=NOW_S - 9, ends_s=NOW_S + 99 * DAY_S)
    copied(ours.certify("controller", "1"), tmp_path)
    tls.look_again()
    assert not list(tls.reasons()) and tls.dates[0].ends_s == NOW_S + 99 * DAY_S
    assert caplog.records[-1].getMessage() == "certificates_reloaded"


def test_a_certificate_that_waits_for_its_time_is_taken_then(tmp_path: Path) -> None:
    ours = authority(tmp_path / "ours")
    files = copied(ours.certify("controller", "1"), tmp_path)
    now_s = NOW_S
    tls = Tls(files, cluster_id="c", now_ms=lambda: 1000 * now_s)
    copied(certified(ours, "controller", "1", begins_s=NOW_S + 60, ends_s=NOW_S + 99 * DAY_S), tmp_path)
    tls.look_again()
    assert [code for code, _ in tls.reasons()] == ["CERTIFICATES_NOT_RELOADED"]
    now_s += 61
    tls.look_again()
    assert not list(tls.reasons()) and tls.dates[0].ends_s == NOW_S + 99 * DAY_S


def test_a_threshold_that_passes_while_the_process_runs_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: warning, yellow and red, in health, log and metric. Method: one process, and a clock that goes on."""
    ours = authority(tmp_path)
    ends_s = NOW_S + 40 * DAY_S
    files = certified(ours, "controller", "1", begins_s=NOW_S - 9, ends_s=ends_s)
    now_s = NOW_S
    tls = Tls(files, cluster_id="c", now_ms=lambda: 1000 * now_s)
    recent = RecentWarnings()
    caplog.set_level(logging.INFO)

    def seen(at_s: int) -> tuple[list[str], list[str], list[tuple[str, int]]]:
        """Return the codes of warnings, of reasons, and what was logged, at a time."""
        nonlocal now_s
        now_s = at_s
        caplog.clear()
        for _ in range(3):
            tls.look_at_dates()
        logged = [(record.getMessage(), record.levelno) for record in caplog.records]
        warned = [row["code"] for row in recent_and_ending(tls, recent.rows())]
        return warned, [code for code, _ in tls.reasons()], logged

    soon, warning = "CERTIFICATE_ENDS_SOON", logging.WARNING
    assert seen(NOW_S) == ([], [], [])
    assert seen(ends_s - 29 * DAY_S) == ([soon], [], [("certificate_ends_soon", warning)])
    assert seen(ends_s - 29 * DAY_S + 3600) == ([soon], [], []), "not logged again within a day"
    assert seen(ends_s - 28 * DAY_S) == ([soon], [], [("certificate_ends_soon", warning)])
    assert seen(ends_s - DAY_S) == ([], [soon], [("certificate_ends_soon", warning)])
    assert seen(ends_s + 1) == ([], ["CERTIFICATE_EXPIRED"], [("certificate_expired", logging.ERROR)])
    (metric,) = certificate_ends(tls.dates)
    assert {sample.labels["kind"]: sample.value for sample in metric.samples}["node"] == ends_s


@pytest.mark.parametrize(
    ("begins_s", "ends_s", "words"),
    [
        (NOW_S - 99, NOW_S - 9, ["certificate has expired", "this machine's clock says"]),
        (
            NOW_S + DAY_S,
            NOW_S + 2 * DAY_S,
            ["certificate is not yet valid", "the clocks of the two machines disagree"],
        ),
    ],
    ids=["expired", "early"],
)
async def test_a_refused_certificate_is_named_at_both_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, begins_s: int, ends_s: int, words: list[str]
) -> None:
    """Goal: OpenSSL's own reason, and the clock. Method: a server whose clock finds its certificate valid, and a client."""
    ours = authority(tmp_path)
    sound = ours.certify("broker", "11")
    files = certified(ours, "controller", "1", begins_s=begins_s, ends_s=ends_s)
    its_time = 1000 * (begins_s + 1)
    imposter = Tls(files, cluster_id="c", now_ms=lambda: its_time)
    async with serving(imposter) as address:
        with pytest.raises(ssl.SSLCertVerificationError) as refused:
            await told(address, trusting(sound.ca))
        assert all(word in why_it_failed(refused.value) for word in words)
    # The other way round: the client shows it, and the server refuses.
    async with serving(Tls(ours.certify("controller", "2"), cluster_id="c")) as address:
        with suppress(ssl.SSLError, ConnectionError):  # the connection ends unanswered, or with an alert
            assert (await told(address, files.client(now_s=begins_s + 1)))[0] == ""
    (record,) = [r for r in caplog.records if r.getMessage() == "certificate_refused"]
    assert words[0] in vars(record)["reason"] and vars(record)["address"] == "127.0.0.1"


def test_an_alert_says_whose_certificate_the_other_end_refused() -> None:
    error = ssl.SSLError(1, "[SSL: SSLV3_ALERT_CERTIFICATE_EXPIRED] sslv3 alert certificate expired")
    error.reason = "SSLV3_ALERT_CERTIFICATE_EXPIRED"
    said = tls_reason(error, now_s=NOW_S)
    assert "the other end refuses" in said and "certificate expired" in said and date_text(NOW_S) in said
    wrapped = ConnectionError("hidden")
    wrapped.__cause__ = error
    assert why_it_failed(wrapped).startswith("TLS failed: the other end refuses")


def test_what_a_peer_showed_ends_with_its_certificate() -> None:
    peer = {"notAfter": "Nov 28 10:00:00 2026 GMT"}
    ends_s = ssl.cert_time_to_seconds(peer["notAfter"])
    assert not has_ended(peer, ends_s) and has_ended(peer, ends_s + 1) and not has_ended({}, ends_s)


@pytest.mark.parametrize(
    ("left_s", "code", "word"),
    [(99 * DAY_S, 4, None), (9 * DAY_S, 4, "CERTIFICATE_ENDS_SOON"), (-9, 3, "expired at")],
)
def test_a_command_says_when_its_own_certificate_ends(
    tmp_path: Path, left_s: int, code: int, word: str | None
) -> None:
    files: TlsFiles = certified(
        authority(tmp_path), "user", "admin", begins_s=NOW_S - 99, ends_s=NOW_S + left_s
    )
    ran = subprocess.run(
        [
            *(sys.executable, "-P", "-m", "ops.cli", "topics", "list", "--bootstrap", "https://127.0.0.1:1"),
            *("--timeout", "100ms", "--ca", str(files.ca)),
            *("--cert", str(files.certificate), "--key", str(files.key)),
        ],
        capture_output=True, text=True, check=False, cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).resolve().parents[5])},
    )  # fmt: skip
    assert ran.returncode == code, ran.stderr
    assert (word is None) == (str(files.certificate) not in ran.stderr), ran.stderr
    assert word is None or word in ran.stderr
