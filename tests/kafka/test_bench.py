"""Edge: what the benchmark beside Kafka's own quorum reads from logs of nodes."""

from ops.bench.kafka import follow_ms

OURS = (
    "2026-11-28T16:45:54.612Z INFO quorum.controller.controller controller_active controller_epoch=1 offset=0\n"
    "2026-11-28T16:46:10.000Z INFO quorum.controller.controller controller_active controller_epoch=3 offset=9\n"
)
THEIRS = (
    "[2026-11-28T16:46:00,100] INFO [RaftManager id=1] Completed transition to Leader(localVoterNode=VoterNode(voterKey="
    "ReplicaKey(id=1, directoryId=Optional.empty)), epoch=2, epochStartOffset=7) from CandidateState(epoch=2, voters=[1])\n"
)


def follows(at: str, epoch: int) -> str:
    return (
        f"[2026-11-28T{at}] INFO [RaftManager id=11] Completed transition to FollowerState(fetchTimeoutMs=2000, "
        f"epoch={epoch}, leader=1, voters=[1]) from UnattachedState(epoch={epoch - 1}, voters=[1]) (QuorumState)\n"
    )


def test_the_last_broker_counts_and_a_claim_that_not_all_followed_is_left_out() -> None:
    first = follows("16:45:59,000", 1) + follows("16:46:00,110", 2) + follows("16:46:10,007", 3)
    # The second broker was not there at the claim of epoch 2, and came back to epoch 3 once more later.
    second = follows("16:46:10,030", 3) + follows("16:46:20,000", 3)
    assert follow_ms([OURS, THEIRS], [first]) == [10.0, 7.0]
    assert follow_ms([OURS, THEIRS], [first, second]) == [30.0]
