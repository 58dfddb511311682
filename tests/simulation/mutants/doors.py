"""Pure: seeded bugs at the doors: web pages, identity, certificates, files and what trickles in."""

from typing import Any, Final

from tests.simulation.mutants.mutant import Directed, Mutant, always

_IDENTITY: Final = "tests/unit/quorum/http/test_identity.py"
_FOREIGN: Final = "tests/unit/quorum/http/test_foreign_callers.py"
_LINKS: Final = "tests/unit/quorum/raft/test_encrypted_links.py"
_SERVER: Final = "tests/unit/metadata_log/node/http/test_server.py"
_TLS: Final = "tests/unit/metadata_log/node/identity/test_tls.py"


def _keeps_the_mode(_original: Any) -> Any:
    return lambda _name, _mode: False


MUTANTS: Final = (
    Mutant(
        "foreign-page",
        "whoever makes a browser send something is taken for its user",
        "metadata_log.node.http.caller:OwnNames.check",
        always(None),
        Directed(f"{_FOREIGN}::test_no_changing_route_takes_what_a_foreign_page_can_send"),
    ),
    Mutant(
        "any-origin",
        "a page of any address may ask",
        "metadata_log.node.http.caller:_is_same",
        always(value=True),
        Directed("tests/unit/metadata_log/node/http/test_caller.py"),
    ),
    Mutant(
        "route-without-rule",
        "a principal needs no right to a route",
        "quorum.http.app:_authorize",
        always(None),
        Directed(f"{_IDENTITY}::test_every_route_with_no_the_wrong_and_the_right_identity"),
    ),
    Mutant(
        "another-broker",
        "one broker speaks as another",
        "metadata_log.node.identity.rights:Principal.check_is",
        always(None),
        Directed(f"{_IDENTITY}::test_nobody_speaks_as_another_node"),
    ),
    Mutant(
        "unasked-poll",
        "a poll is answered whichever principal sends it",
        "quorum.controller.callers:authorize_poll",
        always(None),
        Directed(f"{_IDENTITY}::test_bytes_of_the_log_are_for_admins_controllers_and_registered_brokers"),
        elsewhere=("quorum.fetch.service", "quorum.http.fetch", "quorum.http.poll_connection"),
    ),
    Mutant(
        "unregistered-reads",
        "a broker reads the log although it is not registered",
        "quorum.controller.callers:_is_registered",
        always(value=True),
        Directed(f"{_IDENTITY}::test_bytes_of_the_log_are_for_admins_controllers_and_registered_brokers"),
    ),
    Mutant(
        "any-server",
        "a node calls whoever has a certificate of the authority, as if it were a controller",
        "metadata_log.node.identity.tls:expect",
        always(None),
        Directed(f"{_TLS}::test_a_certificate_of_somebody_else_does_not_pass_for_a_controller_s"),
    ),
    Mutant(
        "old-principals",
        "a principal keeps the rights that the file took from it",
        "metadata_log.node.identity.access:Access._look_again",
        always(None),
        Directed(f"{_IDENTITY}::test_a_changed_file_counts_without_a_restart_and_a_broken_one_does_not"),
    ),
    Mutant(
        "any-certificate",
        "a link is that of the node that its hello names, whatever its certificate says",
        "quorum.raft.transport:TcpTransport.check_certificate",
        always(None),
        Directed(f"{_LINKS}::test_a_node_with_the_certificate_of_another_is_not_linked"),
    ),
    Mutant(
        "wide-directory",
        "a data directory that others may read stays so",
        "metadata_log.node.disk.data_directory:_narrowed",
        _keeps_the_mode,
        Directed("tests/unit/metadata_log/node/test_private_files.py"),
    ),
    Mutant(
        "one-address",
        "one address may hold all connections",
        "metadata_log.node.http.server:Addresses.enter",
        always("?"),
        Directed(f"{_SERVER}::test_connections_of_one_address_beyond_its_share_are_refused"),
    ),
    Mutant(
        "stands-in-line",
        "a heartbeat waits behind all clients that hang up",
        "quorum.pace.loop_turns:TimedSelector.serve_first",
        always(None),
        Directed(
            "tests/unit/quorum/pace/test_loop_turns.py::test_a_link_to_a_voter_is_served_in_each_turn_whoever_waits_in_line"
        ),
    ),
)
