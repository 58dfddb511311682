# shellcheck shell=bash
# Sourced by ops/check behind ops/setup.sh: what runs beside the rest, several processes with tests, and what has the
# lowest weight. It needs a folder `scratch`.

in_background=() said=()
failed=() again=() # tests that failed beside others, and their files, which shall run once more
AGAIN_MAX=4 # more files than these are no accident of a busy machine

# in_memory COMMAND...: run it with its temporary files in memory where there is room: what unit tests write is small and soon
# gone, and its removal waits for no disk.
MEMORY_MIB_MIN=8192
in_memory() (
    room=$(df --output=avail -m /dev/shm 2>/dev/null | tail -n 1)
    if [ "${room:-0}" -ge "$MEMORY_MIB_MIN" ]; then
        TMPDIR=$(mktemp -d -p /dev/shm mq-XXXXXX)
        export TMPDIR
        trap 'rm -rf "$TMPDIR"' EXIT
    fi
    "$@"
)

# beside TESTS... [-- TESTS...]...: run each with pytest, in a process of its own. What the others print is shown once all are done.
beside() {
    local lane=() lanes=1 pids=() shown=() status=0 argument
    for argument in "$@"; do
        [ "$argument" != -- ] || lanes=$((lanes + 1))
    done
    for argument in "$@" --; do
        if [ "$argument" != -- ]; then
            lane+=("$argument")
            continue
        fi
        if [ ${#pids[@]} = 0 ]; then
            pytest_of 0 "$lanes" "${lane[@]}" &
        else
            shown+=("$(mktemp)")
            pytest_of ${#pids[@]} "$lanes" "${lane[@]}" >"${shown[-1]}" 2>&1 &
        fi
        pids+=($!)
        lane=()
    done
    wait_for_all "${pids[@]}" || status=$?
    cat "${shown[@]}"
    rm -f "${shown[@]}"
    return "$status"
}
# As pytest-xdist does, so that each process chooses ports from a share of its own (tests/conftest.py).
pytest_of() {
    PYTEST_XDIST_WORKER=gw$1 PYTEST_XDIST_WORKER_COUNT=$2 "$VENV/bin/python" -m pytest -q "${@:3}"
}
# The greatest status of all: 1 only if none ended otherwise than with tests that failed.
wait_for_all() {
    local status=0 pid ended
    for pid in "$@"; do
        ended=0
        wait "$pid" || ended=$?
        [ "$ended" -le "$status" ] || status=$ended
    done
    return "$status"
}

# in_workers ARGUMENTS...: run pytest in two processes; the one that ends first takes tests of the other's.
in_workers() {
    local status=0 lists=$scratch/failed-in-workers
    mkdir "$lists"
    TEST_FAILURES=$lists in_memory "$VENV/bin/python" -m pytest -q -n 2 --dist worksteal "$@" || status=$?
    only_a_few_failed "$status" "$lists" 1
}
# in_lanes ARGUMENTS...: run pytest in three processes, each of which takes the next file that none has.
in_lanes() {
    local status=0 lists=$scratch/failed-in-lanes
    mkdir "$scratch/taken" "$lists"
    TEST_FILES_TAKEN=$scratch/taken TEST_FAILURES=$lists beside "$@" -- "$@" -- "$@" || status=$?
    only_a_few_failed "$status" "$lists" 3
}
# only_a_few_failed STATUS FOLDER LISTS: if tests of only a few files failed, here and in steps before, that is a success for
# now: `failed` has the tests, `again` their files. A file runs again as a whole: what its first tests leave behind may be why a
# later one fails, and a cluster that did not start fails all that share it.
only_a_few_failed() {
    local status=$1 lists
    [ "$status" != 0 ] || return 0
    [ "$status" = 1 ] || return "$status"
    lists=("$2"/*) # a process that ends before its last test leaves none
    [ ${#lists[@]} = "$3" ] || return "$status"
    [ -n "$(cat "${lists[@]}")" ] || return "$status"
    mapfile -t -O ${#failed[@]} failed < <(sort -u "${lists[@]}")
    mapfile -t again < <(printf '%s\n' "${failed[@]}" | sed 's/::.*//' | sort -u)
    [ ${#again[@]} -le "$AGAIN_MAX" ] || return "$status"
    say "${#failed[@]} tests failed beside others: ${failed[*]}"
    say "their files run once more when all else has ended: ${again[*]}"
}
failed_alone() {
    [ ${#again[@]} = 0 ] || "$VENV/bin/python" -m pytest -q "${again[@]}"
}
say_unsteady() {
    [ ${#failed[@]} = 0 ] || say "unsteady: ${#failed[@]} tests failed beside others and passed alone: ${failed[*]}"
}

# behind COMMAND...: begin it; it has what all others leave of the processors. Where the kernel weighs sessions against each
# other, nice counts within one, so it has a session of its own with the least weight.
behind() {
    said+=("$scratch/behind-${#said[@]}")
    setsid nice -n 19 bash -c '{ echo 19 >/proc/self/autogroup; } 2>/dev/null; exec "$@"' behind "$@" >"${said[-1]}" 2>&1 &
    in_background+=($!)
}
what_was_behind() {
    local status=0
    wait_for_all "${in_background[@]}" || status=$?
    in_background=()
    cat "${said[@]}"
    return "$status"
}
