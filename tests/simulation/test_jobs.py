"""The threads of simulated processes, and the locks that they share with the loop."""

from tests.simulation.world.jobs import Job, JobLock, rest


def test_a_job_that_the_loop_ended_because_it_wanted_a_lock_is_resumed_in_vain() -> None:
    lock, done = JobLock(), []

    def work() -> str:
        with lock:
            rest()
            done.append("in the lock")
        return "all of it"

    job = Job(work)
    assert not job.resume()
    with lock:
        assert done == ["in the lock"]
    assert job.is_done
    assert job.resume(), "whoever drives the job does not know that"
    assert job.result() == "all of it"
